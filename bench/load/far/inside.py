#!/usr/bin/env python3
"""Within the lab: measures what each way carries to the client. `inside.py FILE` in the client, `inside.py source` in the server."""

import json
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from ways import SOCKS, WAYS, Place, await_listener

PORT = 9000
# A direct download that is there meanwhile begins so long before.
BEFORE_S = 4
CHUNK = b"\0" * 65536


def source():
    """Sends to whoever connects, with the congestion control that it names in a line, until it closes."""

    def serve(stream):
        with stream, stream.makefile("rb") as lines:
            try:
                control = lines.readline().strip()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control)
                while True:
                    stream.sendall(CHUNK)
            except OSError:
                pass

    with socket.create_server(("0.0.0.0", PORT), backlog=64) as listener:
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def connect(server, control, proxy):
    """A stream from the server, which has asked for it."""
    stream = socket.create_connection((proxy or server, SOCKS if proxy else PORT), 10)
    if proxy:
        stream.sendall(b"\x05\x01\x00")
        assert stream.recv(2, socket.MSG_WAITALL) == b"\x05\x00"
        stream.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(server) + PORT.to_bytes(2, "big"))
        answer = stream.recv(10, socket.MSG_WAITALL)
        assert answer[1] == 0, f"reply {answer[1]}"
    stream.sendall(control.encode() + b"\n")
    return stream


class Counted:
    """What arrives over some streams, from now on."""

    def __init__(self, streams):
        self.streams, self.bytes, self.first_mb_s = streams, 0, float("inf")
        self.stopped = self.ended = False
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        buffer = bytearray(1 << 20)
        while not self.stopped:
            for stream in select.select(self.streams, [], [], 0.1)[0]:
                got = stream.recv_into(buffer)
                if not got:
                    self.ended, self.stopped = True, True
                self.bytes += got
                if self.bytes >= 1_000_000:
                    self.first_mb_s = min(self.first_mb_s, time.monotonic() - self.began)

    def stop(self):
        self.stopped = True
        self.thread.join()
        for stream in self.streams:
            stream.close()


def measure(name, asked, place, server):
    streams, control, begin = WAYS[name]
    other = Counted([connect(server, asked["beside"], None)]) if asked["beside"] else None
    try:
        proxy = None
        if begin:
            proxy = place.address("home")
            begin(place)
            await_listener(proxy, SOCKS)
        time.sleep(BEFORE_S if other else 1)
        used, before, began = place.cpu_s(), other.bytes if other else 0, time.monotonic()
        counted = Counted([])
        counted.began = began
        counted.streams += [connect(server, control, proxy) for _ in range(streams)]
        time.sleep(began + asked["seconds"] - time.monotonic())
        got, took = counted.bytes, time.monotonic() - began
        rest, used = other.bytes - before if other else 0, place.cpu_s() - used
        counted.stop()
        if counted.ended:
            raise OSError("a stream has ended")
    finally:
        if other:
            other.stop()
        place.stop()
    time.sleep(1)
    mbit = {"mbit": got * 8e-6 / took, "other": rest * 8e-6 / took, "first_mb_s": min(counted.first_mb_s, 1e6)}
    return {"way": name, **mbit, "cpu_s_gb": used / (got / 1e9) if begin and got else None}


def main(asked):
    place = Place(asked)
    server = place.address("server")
    sender = subprocess.Popen(["ip", "netns", "exec", "server", sys.executable, __file__, "source"])
    try:
        await_listener(server, PORT)
        said = []
        for name in asked["ways"]:
            try:
                said.append(measure(name, asked, place, server))
            except (OSError, AssertionError) as error:
                print(f"not measured: {name}: {error}", file=sys.stderr, flush=True)
        Path(asked["said"]).write_text(json.dumps(said))
    finally:
        sender.terminate()
        sender.wait()


if __name__ == "__main__":
    source() if sys.argv[1] == "source" else main(json.loads(Path(sys.argv[1]).read_text()))
