"""A slow line between two Ethernet devices: line.py DEVICE DEVICE MBIT_S RTT_MS BUFFER_BYTES. Each direction has the rate, half of the
round trip, and a drop-tail buffer. Prints `ready`; runs until it is ended."""

import collections
import ctypes
import fcntl
import heapq
import select
import socket
import struct
import sys
import time

ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23


def without_offloads(device):
    """Each packet by itself, with its checksum: ETHTOOL_SRXCSUM, STXCSUM, SSG, STSO, SGSO and SGRO of linux/ethtool.h, by SIOCETHTOOL."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ask:
        for command in (0x15, 0x17, 0x19, 0x1F, 0x24, 0x2C):
            value = (ctypes.c_uint32 * 2)(command, 0)
            try:
                fcntl.ioctl(ask, 0x8946, struct.pack("16sP16x", device.encode(), ctypes.addressof(value)))
            except OSError:
                pass


def opened(device):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.bind((device, 0))
    end.setblocking(False)
    return end


def main():
    left, right, rate, rtt, buffer = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:6])
    byte_s, delay = rate * 1e6 / 8, rtt / 2e3
    for device in (left, right):
        without_offloads(device)
    ends = [opened(left), opened(right)]
    free, waiting, due = [0.0, 0.0], [collections.deque(), collections.deque()], []
    count = 0
    print("ready", flush=True)
    while True:
        pause = max(due[0][0] - time.monotonic(), 0) if due else 1
        readable, _, _ = select.select(ends, [], [], pause)
        now = time.monotonic()
        for end in readable:
            way = ends.index(end)
            for _ in range(64):
                try:
                    frame = end.recv(65_536)
                except BlockingIOError:
                    break
                # What has not begun to be sent is in the buffer.
                while waiting[way] and waiting[way][0][0] <= now:
                    waiting[way].popleft()
                if sum(bytes for _, bytes in waiting[way]) + len(frame) > buffer:
                    continue
                begin = max(now, free[way])
                free[way] = begin + len(frame) / byte_s
                waiting[way].append((begin, len(frame)))
                count += 1
                heapq.heappush(due, (free[way] + delay, count, 1 - way, frame))
        now = time.monotonic()
        while due and due[0][0] <= now:
            _, _, way, frame = heapq.heappop(due)
            try:
                ends[way].send(frame)
            except OSError:
                pass


if __name__ == "__main__":
    main()
