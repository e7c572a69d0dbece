"""Strangers that hold what others need, before they have proven anything and after: places, memory, connections."""
import contextlib, functools, hashlib, hmac, os, resource, socket, subprocess, time, weakref

from attacks import EXIT_TEXT, LEG, LEGS, OPEN, SOCKS, Scene, give
from bench import NODE, PATIENCE, STRANGER, dial, receive, run, socks

MEASURING = 7100
# A ClientHello of 64,000 bytes that never ends, a byte in each TLS record (RFC 8446 section 5.1).
HELLO = b"\x01\x00\xfa\x00" + bytes(64_000)
RECORDS = b"".join(b"\x16\x03\x01\x00\x01" + HELLO[at:at + 1] for at in range(len(HELLO)))


def hold(port, count, addresses, step):
    """Keeps so many connections from these addresses, and does `step(stream)` with one after the other, for ever."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    streams = {}
    while True:
        for number in range(count):
            try:
                if number not in streams:
                    streams[number] = dial(port, addresses[number % len(addresses)], timeout=1)
                step(streams[number])
                if is_over(streams[number]):
                    streams.pop(number).close()
            except OSError:
                if number in streams:
                    streams.pop(number).close()
        time.sleep(0.05)


def is_over(stream):
    # With a time-out it would wait for so long.
    stream.setblocking(False)
    try:
        return stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def has_said(stream):
    try:
        return stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return False


def nothing(stream):
    pass


class silent_measuring(Scene):
    """640 connections from ten addresses that say nothing to a measuring server with keys; known nodes measure."""

    rate, lead = 0.5, 3.0

    def begin(self, at_node):
        self.keys = self.machine.folder / "keys"
        self.keys.mkdir(exist_ok=True)
        prints = [self.key(name) for name in ("server", "client")]
        config = f'[listen.legs]\nkind = "leg"\naddress = "{NODE}:{LEGS}"\nnodes = {{ client = "{prints[1]}" }}\n'
        # Its key must be its own.
        self.node('key_file = "node.key"\n' + config, key=self.keys / "server", serve=("measure", "server", "--listen", f"{NODE}:{MEASURING}"))
        self.fingerprint = prints[0]

    def key(self, name):
        file = self.keys / name
        file.unlink(missing_ok=True)
        return run(self.machine.binary, "keygen", file).strip()

    def strangers(self, at_node):
        with contextlib.suppress(subprocess.CalledProcessError):
            # All of its addresses are this machine's then.
            run("ip", "address", "add", "10.66.1.1/24", "dev", "lo")
        addresses = [f"10.66.1.{number}" for number in range(1, 11)]
        return [(hold, self.target(at_node, MEASURING), 640, addresses, nothing)]

    def honest(self, number):
        command = [self.machine.binary, "measure", "client", f"{NODE}:{MEASURING}", "--key", self.keys / "client", "--fingerprint", self.fingerprint, "--time", "200ms", "--pacing", "10Mbit/s"]
        if subprocess.run(command, capture_output=True, timeout=2 * PATIENCE).returncode != 0:
            raise ConnectionError("it does not measure")


class endless_hellos(Scene):
    """1,000 connections from one address with TLS hellos that never end, a byte a record; `limits.memory` of 64 MiB."""

    lead = 4.0

    def begin(self, at_node):
        file = self.machine.folder / "hellos.key"
        file.unlink(missing_ok=True)
        fingerprint = run(self.machine.binary, "keygen", file).strip()
        leg = f'[listen.legs]\nkind = "leg"\naddress = "{NODE}:{LEGS}"\nnodes = {{ other = "{fingerprint}" }}\n'
        self.node('key_file = "node.key"\n[limits]\nmemory = "64MiB"\n' + OPEN + leg + EXIT_TEXT, key=file)

    def strangers(self, at_node):
        return [(hold, self.target(at_node, LEGS), 1000, [STRANGER], self.say)]

    @staticmethod
    def say(stream):
        stream.setblocking(False)
        said = 0
        with contextlib.suppress(BlockingIOError):
            while said < len(RECORDS):
                said += stream.send(RECORDS[said:said + 65_536])

    def judge(self, result):
        quiet, under = result.beside.mib, result.under.mib
        if under - quiet > 64:
            result.faults.append(f"strangers hold {under - quiet:.0f} MiB")


class idle_node(Scene):
    """An admitted node that keeps 400 connections idle, where 256 may be open."""

    lead = 4.0

    def begin(self, at_node):
        self.node("[limits]\nconnections = 256\n" + OPEN + LEG.format(NODE, LEGS) + EXIT_TEXT, files=2048)

    def strangers(self, at_node):
        if at_node:
            with dial(LEGS, STRANGER, timeout=PATIENCE) as stream:
                prove(stream)
                time.sleep(1.0)
                if is_over(stream) or has_said(stream):
                    raise ConnectionError("the node does not admit the one that is to keep connections idle")
        return [(hold, self.target(at_node, LEGS), 400, [STRANGER], prove if at_node else nothing)]


PROVEN = weakref.WeakSet()
VERSION, HELLO_FRAME, AUTH_FRAME, ABOUT_FRAME = 2, 1, 2, 14


def prove(stream):
    """The dialler's side of docs/design/protocol.md section 3, once for each connection: HELLO, AUTH and ABOUT."""
    if stream in PROVEN:
        return
    stream.settimeout(1.0)
    key, name, hello = b"\x5a" * 32, b"idler", bytes([1, VERSION]) + os.urandom(32)
    stream.sendall(frame(HELLO_FRAME, hello))
    length = int.from_bytes(receive(stream, 8)[4:], "big")
    chosen = receive(stream, length)[:33]
    proof = hmac.new(key, b"ekiden-leg dials" + hello + chosen + name, hashlib.sha256).digest()
    stream.sendall(frame(AUTH_FRAME, proof + name) + frame(ABOUT_FRAME, b"", flags=1))
    PROVEN.add(stream)


def frame(kind, body, flags=0):
    return bytes([kind, flags, 0, 0]) + len(body).to_bytes(4, "big") + body


class blocked_client(Scene):
    """600 streams of one address that stand still in both directions; `limits.memory` of 16 MiB."""

    lead = 10.0

    def begin(self, at_node):
        self.node('[limits]\nmemory = "16MiB"\n' + OPEN + EXIT_TEXT, files=16384)
        self.spring = self.server(give)

    def strangers(self, at_node):
        asks = functools.partial(fill, self.spring if at_node else None)
        return [(hold, self.target(at_node, SOCKS), 600, [STRANGER], asks)]


ASKED = weakref.WeakSet()


def fill(spring, stream):
    """Asks for a server that only gives, once for each connection; then sends what is taken."""
    if spring and stream not in ASKED:
        socks(stream, NODE, spring)
        ASKED.add(stream)
    stream.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            stream.send(bytes(65_536))


ALL = [silent_measuring, endless_hellos, idle_node, blocked_client]
