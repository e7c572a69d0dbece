# What a stream that has ended wrote still arrives when ekiden is told to stop before: the rules go when it is delivered.
# Where that takes longer than limits.drain, the client sees a reset.
config() {
  cat > island.toml <<T
name = "island"
limits = { drain = "$1" }
[listen.v4]
kind = "transparent"
address = "127.0.0.1:3129"
interfaces = ["lan0"]
tcp = { send_buffer = "2MiB" }
[listen.v6]
kind = "transparent"
address = "[::1]:3129"
interfaces = ["lan0"]
tcp = { send_buffer = "2MiB" }
[exit]
client_addresses = ["10.0.0.0/8", "fd00:1::/64"]
T
}
cat > slow.py <<'P'
# Asks, ends its side, and reads only when the file "go" is there.
import hashlib, os, socket, sys, time
host = sys.argv[1]
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.settimeout(60)
s.connect((host, 8080))
s.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
s.shutdown(socket.SHUT_WR)
while not os.path.exists("go"):
    time.sleep(0.05)
answer = b""
while piece := s.recv(65536):
    answer += piece
body = answer.partition(b"\r\n\r\n")[2]
assert body == open("file", "rb").read()[:500_000], len(body)
P
# What its sockets did says more than a log that has nothing.
fail() {
  echo "$*" >&2
  for node in client island server; do echo "==> $node" >&2; on $node ss -Htani >&2; done
  tail -n 30 *.log >&2
  exit 1
}
for host in 10.3.0.2 fd00:3::2; do
  for drain in 60s 10ms; do
    rm -f go island.log
    config $drain
    node island
    on client python3 slow.py $host > slow.log 2>&1 &
    slow=$!
    await 20 eval '[ -n "$(on island ss -Htan state last-ack state closing)" ]'
    kill -TERM $pid
    await 20 grep -q 'stopping: [12] stream' island.log
    if [ $drain = 60s ]; then
      touch go
      wait $slow || fail "$(cat slow.log)"
      wait $pid || fail "it ended with $?"
    else
      wait $pid || fail "it ended with $?"
      touch go
      wait $slow && fail "all of it arrived"
      grep -q ConnectionResetError slow.log || fail "$(cat slow.log)"
    fi
    clean island
  done
done
