"""The attacks. Each is a scene: a node as it might well be configured, strangers, and honest clients with their requests."""
import contextlib, fcntl, multiprocessing, os, socket, struct, threading, time

from bench import NODE, PATIENCE, STRANGER, Node, Server, dial, quietly, receive, socks

SOCKS, WEB, LEGS, EXIT = 1080, 3128, 7000, 7001
EXIT_TEXT = '[exit]\nallow = ["*"]\n'
OPEN = f'[listen.socks]\nkind = "socks5"\naddress = "{NODE}:{SOCKS}"\nopen = true\n'
LEG = '[listen.legs]\nkind = "leg"\naddress = "{}:{}"\nplain_key_file = "line.key"\n'
# Of the node, where that is what an attack is about.
MOST_MIB, MOST_LOG_KIB_PER_SECOND, MOST_CPU = 256, 16, 1.5
# What a download brings, and what is sent to a server that reads late.
DOWNLOAD, UPLOAD = 64 << 20, 5_000_000


class Scene:
    """Without an attack: an open SOCKS listener, and honest clients that send 64 bytes and get them back."""

    # Honest requests per second; how long strangers are at it before.
    rate, lead, warms = 10, 1.0, 0.0

    def __init__(self, machine):
        self.machine, self.nodes, self.servers = machine, [], []

    def node(self, config, **more):
        self.nodes.append(Node(self.machine, f"node{len(self.nodes)}", config, **more))

    def server(self, serve, *args):
        self.servers.append(Server(serve, *args))
        return self.servers[-1].port

    def target(self, at_node, port):
        return port if at_node else self.machine.sink.port

    def begin(self, at_node):
        self.node(OPEN + EXIT_TEXT)

    def strangers(self, at_node):
        """Functions with arguments, each of which is run in a process of its own."""
        return []

    def honest(self, number):
        with dial(SOCKS) as stream:
            socks(stream, NODE, self.machine.echo.port)
            self.echoed(stream)

    def echoed(self, stream):
        stream.sendall(b"h" * 64)
        receive(stream, 64)

    def after(self, measured):
        """What the attack itself can tell, before the nodes end."""

    def judge(self, result):
        """Adds what breaks the bound that the attack is about to the faults."""


def reset(stream):
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def forever(count, work, *args):
    """On so many threads, again and again."""
    def again():
        while True:
            quietly(work, *args)
            # Where everything is refused at once that is no reason to take a whole processor.
            time.sleep(0.01)

    threading.stack_size(256 << 10)
    for _ in range(count):
        threading.Thread(target=again, daemon=True).start()
    time.sleep(3600)


class Logins(Scene):
    """Listeners with users, each honest request with a login that the node has not seen before."""

    rate, most = 4, 40
    hashes = []

    def begin(self, at_node, more=""):
        if not Logins.hashes:
            Logins.hashes = self.machine.hashes(self.most)
        users = "users = { " + ", ".join(f'user{number} = "{hashed}"' for number, hashed in enumerate(self.hashes)) + " }\n"
        web = f'[listen.web]\nkind = "http"\naddress = "{NODE}:{WEB}"\n{users}'
        self.node(more + OPEN.replace("open = true\n", users) + web + EXIT_TEXT)

    def honest(self, number):
        number %= self.most
        with dial(SOCKS) as stream:
            socks(stream, NODE, self.machine.echo.port, f"user{number}", f"right{number}")
            self.echoed(stream)


class no_credentials(Logins):
    """HTTP requests without credentials, 120 at a time, each reset at once; honest clients log in."""

    def strangers(self, at_node):
        return [(self.flood, self.target(at_node, WEB))]

    @staticmethod
    def flood(port):
        while True:
            streams = []
            for _ in range(120):
                with contextlib.suppress(OSError):
                    stream = dial(port, STRANGER)
                    stream.sendall(b"CONNECT x.test:1 HTTP/1.1\r\nHost: x.test\r\n\r\n")
                    streams.append(stream)
            for stream in streams:
                reset(stream)
            time.sleep(0.5)


class wrong_passwords(Logins):
    """40 wrong passwords a second from one host; honest clients log in."""

    def strangers(self, at_node):
        return [(self.guess, self.target(at_node, SOCKS))]

    @staticmethod
    def guess(port):
        for number in range(1 << 30):
            threading.Thread(target=quietly, args=(guess, port, number), daemon=True).start()
            time.sleep(1 / 40)


def guess(port, number, patience=PATIENCE):
    with dial(port, STRANGER, patience) as stream:
        socks(stream, NODE, 9, f"user{number % 40}", f"wrong{number}")


class waiting_logins(Logins):
    """900 wrong logins that wait at a time, under a handshake limit of 3 s; honest clients log in."""

    lead = 5.0

    def begin(self, at_node):
        super().begin(at_node, '[limits]\nhandshake = "3s"\n')

    def strangers(self, at_node):
        return [(forever, 900, guess, self.target(at_node, SOCKS), 1)]

    def judge(self, result):
        if result.under.mib > MOST_MIB:
            result.faults.append(f"the node takes {result.under.mib:.0f} MiB, more than {MOST_MIB}")


class silent_legs(Scene):
    """200 connections to a leg listener that say nothing, where 64 may be open."""

    def begin(self, at_node):
        self.node("[limits]\nconnections = 64\n" + OPEN + LEG.format(NODE, LEGS) + EXIT_TEXT)

    def strangers(self, at_node):
        return [(forever, 200, self.silent, self.target(at_node, LEGS))]

    @staticmethod
    def silent(port):
        with dial(port, STRANGER) as stream:
            stream.settimeout(60)
            stream.recv(1)


class dead_names(Scene):
    """200 connections that ask for a name with 16 addresses that never answer, half of which leave at once; 1,024 descriptors."""

    lead = 3.0

    def begin(self, at_node):
        self.node(OPEN + EXIT_TEXT, files=1024)

    def strangers(self, at_node):
        port = self.target(at_node, SOCKS)
        return [(forever, 100, self.ask, port, PATIENCE), (forever, 100, self.ask, port, 0.5)]

    @staticmethod
    def ask(port, patience):
        with dial(port, STRANGER) as stream:
            stream.settimeout(patience)
            socks(stream, "many.test", 80)


class blocked_streams(Scene):
    """120 streams whose receivers do not read, on a node without privileges; honest clients download 64 MiB."""

    rate, lead = 4, 3.0

    def begin(self, at_node):
        super().begin(at_node)
        self.source = self.server(give)
        self.stuck = self.server(lambda stream: time.sleep(3600))

    def strangers(self, at_node):
        return [(forever, 120, self.fill, SOCKS if at_node else None, self.stuck)]

    @staticmethod
    def fill(proxy, stuck):
        with dial(proxy or stuck, STRANGER) as stream:
            if proxy:
                socks(stream, NODE, stuck)
            stream.settimeout(3600)
            while True:
                stream.sendall(b"s" * (1 << 16))

    def honest(self, number):
        with dial(SOCKS) as stream:
            socks(stream, NODE, self.source)
            buffer, missing = bytearray(1 << 18), DOWNLOAD
            while missing > 0:
                count = stream.recv_into(buffer)
                if count == 0:
                    raise ConnectionError("the download is cut short")
                missing -= count

    def judge(self, result):
        ratio = result.under.cpu_ms_each / max(1e-3, result.beside.cpu_ms_each)
        if ratio > MOST_CPU:
            result.faults.append(f"a download takes {ratio:.1f} times the processor time")


def give(stream):
    with stream:
        piece = b"d" * (1 << 18)
        for _ in range(DOWNLOAD // len(piece)):
            stream.sendall(piece)


class ends_first_reads_late(Scene):
    """40 streams over two nodes to a server that ends its side first and reads 6 s later; what was said must arrive."""

    lead, late = 2.0, 6

    def begin(self, at_node):
        peer = f'[peer.exit]\naddress = "{NODE}:{EXIT}"\nplain_key_file = "line.key"\n'
        limits = '[limits]\npool_idle = "2s"\n'
        self.node('name = "exit"\n' + limits + LEG.format(NODE, EXIT) + EXIT_TEXT)
        self.node(limits + OPEN + peer + '[[route]]\nto = ["*"]\nvia = ["exit"]\n')
        # Streams that were said in whole, and of those that the server has read: in whole, and not.
        self.said, self.whole, self.short = (multiprocessing.Value("i", 0) for _ in range(3))
        self.slow = self.server(self.read_late)

    def read_late(self, stream):
        with stream:
            stream.shutdown(socket.SHUT_WR)
            time.sleep(self.late)
            count = 0
            with contextlib.suppress(OSError):
                while piece := stream.recv(1 << 20):
                    count += len(piece)
            outcome = self.whole if count == UPLOAD else self.short
            with outcome.get_lock():
                outcome.value += 1

    def strangers(self, at_node):
        return [(self.upload, SOCKS if at_node else None)]

    def upload(self, proxy):
        for _ in range(40):
            threading.Thread(target=quietly, args=(self.one, proxy), daemon=True).start()
        time.sleep(3600)

    def one(self, proxy):
        with dial(proxy or self.slow, STRANGER) as stream:
            if proxy:
                socks(stream, NODE, self.slow)
            stream.settimeout(60)
            stream.sendall(b"u" * UPLOAD)
            stream.shutdown(socket.SHUT_WR)
            if stream.recv(1) == b"":
                with self.said.get_lock():
                    self.said.value += 1

    def after(self, measured):
        end = time.monotonic() + self.late + PATIENCE
        while self.whole.value + self.short.value < 40 and time.monotonic() < end:
            time.sleep(0.1)
        if self.whole.value < self.said.value:
            measured.faults.append(f"{self.said.value - self.whole.value} of {self.said.value} uploads that were said in whole do not arrive")


class Refused(Scene):
    """A leg listener, and strangers that it refuses, as fast as one script can, 2,000 before anything is measured."""

    lead = 3.0

    def begin(self, at_node, **more):
        self.node(OPEN + LEG.format(NODE, LEGS) + EXIT_TEXT, **more)

    def strangers(self, at_node):
        return [(self.knock, self.target(at_node, LEGS))]

    @staticmethod
    def knock(port):
        while True:
            with contextlib.suppress(OSError), dial(port, STRANGER) as stream:
                # No version of the protocol begins so.
                stream.sendall(b"GET / HTTP/1.0\r\n\r\n" + b"x" * 64)
                stream.settimeout(0.2)
                stream.shutdown(socket.SHUT_WR)
                stream.recv(1)


class refused_peers(Refused):
    """Refused handshakes, as fast as one script can; what the log takes."""

    def judge(self, result):
        rate = result.under.log_kib / (self.machine.seconds + self.lead)
        if rate > MOST_LOG_KIB_PER_SECOND:
            result.faults.append(f"the log takes {rate:.0f} KiB a second, more than {MOST_LOG_KIB_PER_SECOND}")


class unread_log(Refused):
    """The same, with the log into a pipe that nobody reads and that is nearly full."""

    def begin(self, at_node):
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)
        super().begin(at_node, log=self.writing)
        os.close(self.writing)


ALL = [
    no_credentials, wrong_passwords, waiting_logins, silent_legs, dead_names, blocked_streams, ends_first_reads_late, refused_peers, unread_log,
]
