# What is excepted passes as if there were no node; so does what comes in elsewhere or is for the router itself.
cat > island.toml <<'T'
name = "island"
[listen.v4]
kind = "transparent"
address = "127.0.0.1:3129"
interfaces = ["lan0", "not-there"]
late_interfaces = true
except = ["10.3.0.3", "*:8081", "10.9.0.0/16", "10.3.0.0/24:9000"]
[listen.v6]
kind = "transparent"
address = "[::1]:3129"
interfaces = ["lan0"]
except = ["fd00:3::3/128", "[fd00:3::2]:8081", "10.3.0.0/16"]
T
node island
sees 10.2.0.1 10.3.0.2:8080
sees 10.1.0.2 10.3.0.2:8081
sees 10.1.0.2 10.3.0.3:8080
sees fd00:2::1 '[fd00:3::2]:8080'
sees fd00:1::2 '[fd00:3::2]:8081'
sees fd00:1::2 '[fd00:3::3]:8080'
until_accepted island 2

# A program on the router that listens with IP_TRANSPARENT on all addresses takes nothing that is forwarded.
cat > other.py <<'P'
import socket
listener = socket.socket(socket.AF_INET6)
listener.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
listener.setsockopt(socket.IPPROTO_IPV6, 75, 1)  # IPV6_TRANSPARENT
listener.bind(("::", 8081))
listener.listen()
while True:
    listener.accept()[0].sendall(b"HTTP/1.0 200 OK\r\n\r\nother\n")
P
ip netns exec island python3 other.py & other=$!
await 20 listens island 8081
sees 10.1.0.2 10.3.0.2:8081
sees fd00:1::2 '[fd00:3::2]:8081'
kill -9 $other; wait $other || true

# The router's own services, and those of hosts behind it for others, are not touched.
for node in island client; do on $node python3 server.py > /dev/null 2>&1 & await 20 listens $node 9000; done
sees 10.1.0.2 10.2.0.1:8080
sees fd00:1::2 '[fd00:1::1]:8080'
seen=$(on server curl -sS --max-time 30 http://10.1.0.2:8080/who | cut -d' ' -f1)
[ "$seen" = 10.3.0.2 ] || fail "the client sees $seen"
seen=$(on island curl -sS --max-time 30 http://10.3.0.2:8080/who | cut -d' ' -f1)
[ "$seen" = 10.2.0.1 ] || fail "the server sees $seen of the router itself"
until_accepted island 2

# Nobody gets at the listener's own port, and it does not relay to itself.
for to in 10.1.0.1 10.2.0.1; do
  if on client curl -sS --max-time 30 http://$to:3129/who 2> error; then fail "an answer from $to:3129"; fi
  grep -qi 'connect to' error || fail "$(cat error)"
done
for to in 127.0.0.1 '[::1]'; do
  if on island curl -sSg --max-time 30 http://$to:3129/who 2> error; then fail "an answer from $to:3129"; fi
  # A reset that comes at once leaves curl without a peer to name.
  grep -Eq 'reset|connect to|not connected' error || fail "$(cat error)"
done
until_accepted island 4
stop $pid
clean island
