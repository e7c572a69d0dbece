# Common to all tests of transparent listeners. Runs in namespaces of its own, in an empty folder; $EKIDEN is the program.
#
#   client 10.1.0.2 ─ lan0 island wan0 10.2.0.1 ─ lan0 exit wan0 10.3.0.1 ─ server 10.3.0.2, 10.3.0.3
#
# and the same in IPv6 with fd00:1::2 and so on. Island and exit are routers; ekiden runs on one of them or on both.
network client island exit server
for node in client island exit server; do
  # Ports that tests choose themselves are above.
  on $node sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 'net.ipv4.ip_local_port_range=32768 39999'
done
link client eth0 10.1.0.2/24,fd00:1::2/64 island lan0 10.1.0.1/24,fd00:1::1/64
link island wan0 10.2.0.1/24,fd00:2::1/64 exit lan0 10.2.0.2/24,fd00:2::2/64
link exit wan0 10.3.0.1/24,fd00:3::1/64 server eth0 10.3.0.2/24,fd00:3::2/64
addresses server eth0 10.3.0.3/24,fd00:3::3/64
# route NODE GATEWAY: by default
route() { ip -n $1 route add default via 10.$2; ip -n $1 -6 route add default via fd00:$3; }
route client 1.0.1 1::1
route island 2.0.2 2::2
route server 3.0.1 3::1
ip -n exit route add 10.1.0.0/24 via 10.2.0.1; ip -n exit -6 route add fd00:1::/64 via fd00:2::1

cat > server.py <<'P'
# HTTP on 8080 and 8081 that says who asks, serves the file and hashes what is put; on 9000 lines are sent back.
import hashlib, http.server, socket, socketserver, threading

class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        who = f"{self.client_address[0]} {self.client_address[1]}\n".encode()
        content = open("file", "rb").read()
        self.answer({"/who": who, "/small": content[:500_000]}.get(self.path, content))
    def do_PUT(self):
        self.answer(hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest().encode())

class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 100

class Server6(Server):
    address_family = socket.AF_INET6

for kind, any in ((Server, "0.0.0.0"), (Server6, "::")):
    for port, handler in ((8080, Http), (8081, Http), (9000, Echo)):
        if kind is Server6:
            kind.server_bind = lambda self: (self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1),
                                             socketserver.TCPServer.server_bind(self))
        threading.Thread(target=kind((any, port), handler).serve_forever).start()
P

# Listeners on the island for what comes in by lan0.
listeners='[listen.v4]
kind = "transparent"
address = "127.0.0.1:3129"
interfaces = ["lan0"]
[listen.v6]
kind = "transparent"
address = "[::1]:3129"
interfaces = ["lan0"]'

head -c 5000000 /dev/urandom > file
on server python3 server.py > server.log 2>&1 &
await 20 listens server 9000

# node NAME: starts ekiden on a node, with NAME.toml; $pid is its process.
node() {
  # The shell empties it only when the program starts, and an earlier one's would be read.
  rm -f $1.out
  EKIDEN_LOG=trace ip netns exec $1 "$EKIDEN" proxy -c $1.toml > $1.out 2>> $1.log &
  pid=$!
  await 20 grep -qs '^ready' $1.out
}

# stop PID: by SIGTERM, and it must succeed.
stop() { kill -TERM $1; wait $1 || fail "it ended with $?"; }

# who URL [CURL'S OPTIONS]: the address, and with $port the port, that the server sees.
who() { on client curl -sSg --max-time 30 "${@:2}" "http://$1/who"; }

# sees ADDRESS URL: what the server has to see of a new connection.
sees() { local seen; seen=$(who $2 | cut -d' ' -f1); [ "$seen" = "$1" ] || fail "$2 sees $seen, not $1"; }

# A port of the client's that was not used yet.
next_port=41000
fresh_port() { next_port=$((next_port + 1)); }

# sees_client CLIENT URL: the client's own address and port.
sees_client() {
  fresh_port
  local seen; seen=$(who $2 --local-port $next_port)
  [ "$seen" = "$1 $next_port" ] || fail "$2 sees $seen, not $1 $next_port"
}

# whole HOST: the file both ways.
whole() {
  on client curl -sSg --max-time 60 "http://$1/file" -o got && cmp file got
  [ "$(on client curl -sSg --max-time 60 -T file "http://$1/put")" = "$(sha256sum file | cut -d' ' -f1)" ] || fail "$1 got another file"
}

# accepted NODE: how many connections its ekiden has accepted so far.
accepted() { grep -c ' accepted ' $1.log || true; }

# until_accepted NODE N: waits until it has accepted N, and no more. The log has a thread of its own.
until_accepted() { await 20 eval "[ \"\$(accepted $1)\" -ge $2 ]"; [ "$(accepted $1)" = $2 ] || fail "$1 has accepted $(accepted $1)"; }

# No trace of ekiden in the packet filter and the routing of a node.
clean() {
  [ -z "$(on $1 nft list tables)" ] || fail "$(on $1 nft list ruleset)"
  local family
  for family in -4 -6; do
    if ip -n $1 $family rule | grep fwmark > /dev/null; then fail "$(ip -n $1 $family rule)"; fi
    if ip -n $1 $family route show table all | grep 'local default' > /dev/null; then fail "$(ip -n $1 $family route show table all)"; fi
  done
}
