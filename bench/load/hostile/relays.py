"""A relay of an overlay that is sick, or lies: one of four between an entry and the exit, and what honest clients lose to it."""
import contextlib, hashlib, hmac, json, os, re, socket, struct, threading, time

from attacks import EXIT_TEXT, OPEN, SOCKS, Scene
from bench import NODE, Node, dial, quietly, receive, run, socks

# Leg listeners, the entry's last because it starts last; and a slow way to the exit.
PORTS = {"sick": 7101, "relay1": 7102, "relay2": 7103, "relay3": 7104, "exit": 7105, "entry": 7106}
SLOW = 7107
SECRET = bytes([0x5A] * 32)
VERSION = b"\2"
HELLO, AUTH, OPENS, OPENED, ASK, TOLD, FILL = 1, 2, 3, 4, 10, 11, 12
# So long a piece is on its way between the entry and the exit, and so long a client waits.
DELAY, WAITS = 0.03, 3.0


def say(stream, kind, body=b""):
    stream.sendall(struct.pack(">B3xI", kind, len(body)) + body)


def hear(stream):
    kind, length = struct.unpack(">B3xI", receive(stream, 8))
    return kind, receive(stream, length)


def names_of(body):
    names, rest = [], body[1:]
    for _ in range(body[0]):
        names.append(rest[1:1 + rest[0]].decode())
        rest = rest[1 + rest[0]:]
    return names


def relay(stream, opens, given):
    """Says that it is near everybody. Of streams it says that they are open, or nothing, and reads what comes. Adds them to `given`."""
    with stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kind, hello = hear(stream)
        if kind != HELLO:
            return
        nonce = os.urandom(32)
        proof = hmac.digest(SECRET, b"ekiden-leg takes" + hello + VERSION + nonce, hashlib.sha256)
        say(stream, HELLO, VERSION + nonce + proof)
        while True:
            kind, body = hear(stream)
            if kind == ASK:
                legs = {name: {"rtt_us": 1, "loss": 0, "age_s": 0} for name in names_of(body) + ["entry"]}
                say(stream, TOLD, json.dumps({"told_format": 1, "node": "sick", "load": 0, "legs": legs}).encode())
            elif kind == FILL:
                say(stream, FILL, bytes(len(body)))
            elif kind == OPENS:
                given.append(stream.getpeername())
                if opens:
                    say(stream, OPENED, b"\1" + socket.inet_aton(NODE) + struct.pack(">H", 9))
                while stream.recv(1 << 16):
                    pass
                return


def slow(stream):
    """A way to the exit that takes a while."""
    def pass_on(a, b):
        while piece := a.recv(1 << 16):
            time.sleep(DELAY)
            b.sendall(piece)
        b.shutdown(socket.SHUT_WR)

    with stream, socket.create_connection((NODE, PORTS["exit"])) as on:
        threading.Thread(target=quietly, args=(pass_on, on, stream), daemon=True).start()
        pass_on(stream, on)


def serve_at(port, serve, *args):
    listener = socket.create_server((NODE, port), backlog=1024)

    def work():
        # Until the listener is shut.
        with contextlib.suppress(OSError):
            while True:
                stream, _ = listener.accept()
                threading.Thread(target=quietly, args=(serve, stream, *args), daemon=True).start()

    threading.Thread(target=work, daemon=True).start()
    return listener


class SickRelay(Scene):
    # Of so many requests one that waits does not make the p99.
    rate, lead, warms = 40, 0.0, 4.0
    kind, opens, can_ask = "interactive", True, True

    def begin(self, at_node):
        self.lost, self.given = 0, []
        prints = {name: self.key(self.machine.folder / name) for name in PORTS}
        # Where the entry sees the exit: over a slow way, or not at all.
        self.listeners = [serve_at(SLOW, slow)] if self.can_ask else []
        self.is_attacked = at_node
        if at_node:
            self.listeners.append(serve_at(PORTS["sick"], relay, self.opens, self.given))
        for name in PORTS:
            if name != "sick" or not at_node:
                self.member(name, at_node, prints)

    def key(self, folder):
        folder.mkdir(exist_ok=True)
        path = folder / "node.pem"
        path.unlink(missing_ok=True)
        said = run(self.machine.binary, "keygen", str(path))
        os.chown(path, 65534, 65534)
        return re.search(r"sha256:[0-9a-f]{64}", said)[0]

    def member(self, name, at_node, prints):
        members = ""
        for other, port in PORTS.items():
            port = SLOW if (name, other) == ("entry", "exit") else port
            members += f'[node.{other}]\naddress = "{NODE}:{port}"\nfingerprint = "{prints[other]}"\n'
            members += f'near = ["{NODE}/32"]\nrelays = false\n' if other == "exit" else ""
        (self.machine.folder / name / "members.toml").write_text(members)
        config = f'name = "{name}"\nkey_file = "node.pem"\n[listen.leg]\nkind = "leg"\naddress = "{NODE}:{PORTS[name]}"\n'
        config += '[overlay]\nmembers_file = "members.toml"\n' + EXIT_TEXT
        if name == "entry":
            config += OPEN + f'[[route]]\nto = ["*"]\nvia = "auto"\nclass = "{self.kind}"\nmost_relays = 1\n'
            if at_node:
                config += f'[peer.sick]\naddress = "{NODE}:{PORTS["sick"]}"\nplain_key_file = "line.key"\n'
        self.nodes.append(Node(self.machine, name, config))

    def honest(self, number):
        try:
            with dial(SOCKS) as stream:
                stream.settimeout(WAITS)
                socks(stream, NODE, self.machine.echo.port)
                self.echoed(stream)
        except OSError:
            self.lost += 1
            raise

    def after(self, measured):
        for listener in self.listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if self.is_attacked and not self.given:
            measured.faults.append("the sick relay was given no stream")
        if self.lost > 1:
            measured.faults.append(f"{self.lost} streams are lost, more than one")


class relay_invents_streams(SickRelay):
    """One relay of four says that streams are open and forwards nothing; interactive streams."""


class relay_is_silent(SickRelay):
    """The same for bulk streams, where the entry cannot ask the exit."""

    kind, can_ask = "bulk", False


class relay_opens_nothing(SickRelay):
    """One relay of four answers questions, and no OPEN."""

    opens = False


ALL = [relay_invents_streams, relay_is_silent, relay_opens_nothing]
