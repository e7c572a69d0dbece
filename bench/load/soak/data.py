"""The bytes that are sent both ways: known to both, so that each piece is compared as it comes."""
import random, socket, struct

PERIOD = 1_000_003
_BLOCK = random.Random(5).randbytes(PERIOD)
_TWICE = memoryview(_BLOCK * 2)
PIECE = 256 << 10


def piece(at, most=PIECE):
    """The bytes from `at` on."""
    start = at % PERIOD
    return _TWICE[start:start + most]


class Wrong(Exception):
    """Other bytes came than were sent."""


class FalseEnd(Exception):
    """A clean end of stream that nobody said."""


def send(stream, length, pause=lambda: None):
    sent = 0
    while sent < length:
        sent += stream.send(piece(sent, min(PIECE, length - sent)))
        pause()


def receive(source, length, most=PIECE, pause=lambda: None):
    """`length` bytes from `source(n)`, which gives nothing at a clean end."""
    got = 0
    while got < length:
        data = source(min(most, length - got))
        if not data:
            raise FalseEnd(f"an end after {got} of {length} bytes")
        if piece(got, len(data)) != data:
            raise Wrong(f"other bytes than were sent, {got} bytes in")
        got += len(data)
        pause()


def line(stream):
    """A line, byte by byte: what follows is payload. Empty at a clean end before its first byte."""
    text = b""
    while not text.endswith(b"\n"):
        byte = stream.recv(1)
        if not byte:
            if text:
                raise FalseEnd("an end in the middle of a line")
            return ""
        text += byte
    return text.decode().strip()


def reset(stream):
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
