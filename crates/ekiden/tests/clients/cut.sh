# client – r1 – NODE r2 – r3 – NODE r4 – r5 – NODE r6 – r7 – server. The line is cut at each of the plain routers in the
# middle of transfers: whoever receives sees a break, never an end that was not said.
for node in r2 r4 r6; do
  "$EKIDEN" keygen $node.key > $node.print
  cat > $node.toml <<T
name = "$node"
key_file = "$node.key"
[tcp]
keepalive = "1s"
user_timeout = "2s"
[listen.leg]
kind = "leg"
address = "0.0.0.0:7000"
[exit]
allow = ["10.77.0.0/16"]
T
done
cat >> r2.toml <<T
[listen.fwd]
kind = "forward"
address = "0.0.0.0:7001"
reply = "connected"
open = true
to = "server:9000"
via = ["r4", "r6"]
T
link() {
  "$EKIDEN" peer add -c $1.toml $2 "$(getent hosts $2 | cut -d' ' -f1):7000" $(cat $2.print)
  "$EKIDEN" peer allow -c $2.toml $1 $(cat $1.print)
}
link r2 r4; link r4 r6
for node in r2 r4 r6; do on $node "$EKIDEN" proxy -c $node.toml > $node.log 2>&1 & done
await 20 listens r2 7001; await 20 listens r4 7000; await 20 listens r6 7000
ROUNDS=${ROUNDS:-8} python3 - <<'P'
import ctypes, fcntl, os, random, select, socket, struct, termios, time

ROUNDS, STREAMS, PATIENCE = int(os.environ["ROUNDS"]), 10, 60
draw = random.Random(5)
data = draw.randbytes(1_000_003)


def enter(node):
    """Sockets made from here on are this node's."""
    with open(f"/run/netns/{node}") as namespace:
        assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000) == 0


def forward(router, does):
    """Without it the router drops what it should pass on, and says nothing."""
    enter(router)
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("01"[does])
    enter("client")


class Direction:
    def __init__(self):
        self.length = draw.choice([0, draw.randrange(1_000_000), 1 << 60, 1 << 60])
        self.pace = draw.choice([0, 0, 3000, 1 << 20])
        self.sent = self.received = 0
        self.said = False
        self.over = None

    def write(self, to):
        at = self.sent % len(data)
        piece = data[at:at + min(self.length - self.sent, 65536)]
        try:
            if piece:
                self.sent += to.send(piece)
            elif not self.said:
                to.shutdown(socket.SHUT_WR)
                self.said = True
        except BlockingIOError:
            pass

    def read(self, source, most):
        try:
            piece = source.recv(most)
        except BlockingIOError:
            return
        except OSError as error:
            self.over = error.strerror
            return
        if not piece:
            self.over = "end"
        at = self.received % len(data)
        assert piece == (data[at:] + data * 3)[:len(piece)], "other bytes than were said"
        self.received += len(piece)


class Stream:
    def __init__(self, server):
        self.client = socket.create_connection((socket.gethostbyname("r2"), 7001), timeout=PATIENCE)
        self.client.sendall(b"!")
        self.server, _ = server.accept()
        self.server.settimeout(PATIENCE)
        assert self.server.recv(1) == b"!"
        for end in self.client, self.server:
            end.setblocking(False)
            # For the host that is cut off itself.
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2000)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        self.ways = [(Direction(), self.client, self.server), (Direction(), self.server, self.client)]


enter("server")
server = socket.create_server(("", 9000))
server.settimeout(PATIENCE)
enter("client")
cuts = under_way = false_ends = whole = 0
reasons = {}
for turn in range(ROUNDS):
    router = ["r3", "r5", "r1", "r7"][turn % 4]
    streams = [Stream(server) for _ in range(STREAMS)]
    ways = [way for stream in streams for way in stream.ways]
    moment = time.monotonic() + 0.05 + draw.random() * 0.3
    while time.monotonic() < moment:
        for way, source, sink in ways:
            way.write(source)
            if way.pace and not way.over:
                way.read(sink, 1 + draw.randrange(way.pace))
    forward(router, False)
    before = [not way.over and way.sent > way.received for way, _, _ in ways]
    under_way += sum(before)
    cuts += any(before)
    end = time.monotonic() + PATIENCE
    while any(not way.over for way, _, _ in ways):
        assert time.monotonic() < end, f"cut at {router}: no end and no break within {PATIENCE} s"
        readable = [sink for way, _, sink in ways if not way.over]
        for sink in select.select(readable, [], [], 1)[0]:
            next(way for way, _, other in ways if other is sink).read(sink, 1 << 20)
    for way, _, _ in ways:
        reasons[way.over] = reasons.get(way.over, 0) + 1
        if way.over == "end":
            if way.said and way.received == way.sent:
                whole += 1
            else:
                false_ends += 1
                print(f"cut at {router}: an end after {way.received} of {way.sent} bytes, said: {way.said}")
    forward(router, True)
    for stream in streams:
        stream.client.close()
        stream.server.close()
print(f"{cuts} cuts under way, {under_way} directions under way, {whole} whole, {false_ends} false ends; {reasons}")
assert false_ends == 0
assert cuts == ROUNDS and under_way >= ROUNDS * STREAMS * 0.6

# What a host has said before it was cut off arrives, also at a client that reads it later, and no end behind it.
stream = Stream(server)
said = data[:900_000]
stream.server.setblocking(True)
stream.server.sendall(said)
end = time.monotonic() + PATIENCE
while struct.unpack("i", fcntl.ioctl(stream.server, termios.TIOCOUTQ, bytes(4)))[0]:
    assert time.monotonic() < end, "the node does not acknowledge"
    time.sleep(0.01)
forward("r7", False)
stream.client.setblocking(True)
stream.client.settimeout(PATIENCE)
got = b""
try:
    while piece := stream.client.recv(8192):
        got += piece
        time.sleep(0.05)
    over = "end"
except ConnectionError as error:
    over = error.strerror
print(f"cut off: {len(got)} of {len(said)} bytes, then {over}")
assert got == said and over != "end"
P
