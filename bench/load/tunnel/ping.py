"""Round trips of small UDP packets: ping.py server ADDRESS, or client ADDRESS SECONDS, which prints them in ms, one a line."""

import socket
import struct
import sys
import threading
import time

PORT = 7007

if sys.argv[1] == "server":
    echo = socket.socket(type=socket.SOCK_DGRAM)
    echo.bind((sys.argv[2], PORT))
    while True:
        data, sender = echo.recvfrom(100)
        echo.sendto(data, sender)
asker = socket.socket(type=socket.SOCK_DGRAM)
asker.connect((sys.argv[2], PORT))
asker.settimeout(0.5)
end = time.monotonic() + float(sys.argv[3])


def ask():
    while time.monotonic() < end:
        try:
            asker.send(struct.pack("d", time.monotonic()))
        except OSError:
            pass
        time.sleep(0.05)


threading.Thread(target=ask, daemon=True).start()
while time.monotonic() < end + 1:
    try:
        (sent,) = struct.unpack("d", asker.recv(100))
    except OSError:
        continue
    print(round((time.monotonic() - sent) * 1e3, 1), flush=True)
