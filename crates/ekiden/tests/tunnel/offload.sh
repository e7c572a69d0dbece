# Super-packets go whole between two devices with offloads, and as segments to one without: what arrives is what was sent, both
# ways and over both families. A connection that has carried something knows its rate: so each file goes twice.
cat > files.py <<'P'
# server ADDRESS: sends `data` to whoever connects, then takes what comes until the end and says its checksum.
# client ADDRESS: takes as many bytes as `data` has, sends the same, and compares.
import hashlib, socket, sys
data = open("data", "rb").read()
family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET

def take(connection, count):
    digest = hashlib.sha256()
    while count > 0:
        piece = connection.recv(min(count, 1 << 20))
        assert piece, "the end came too early"
        digest.update(piece)
        count -= len(piece)
    return digest.hexdigest()

expected = hashlib.sha256(data).hexdigest()
if sys.argv[1] == "server":
    listener = socket.create_server((sys.argv[2], 6001), family=family)
    while True:
        connection, _ = listener.accept()
        connection.sendall(data)
        connection.sendall(take(connection, len(data)).encode())
        connection.close()
connection = socket.create_connection((sys.argv[2], 6001), timeout=120)
assert take(connection, len(data)) == expected, "what came is not what was sent"
connection.sendall(data)
answer = b""
while len(answer) < 64:
    answer += connection.recv(64)
assert answer.decode() == expected, "what was sent is not what arrived"
P
head -c 50000000 /dev/urandom > data
on city python3 files.py server 0.0.0.0 & on city python3 files.py server :: &
# size NODE: bytes for each packet that the node has sent.
size() {
  (cd $1 && ip netns exec $1 "$EKIDEN" tunnel status --json) | python3 -c '
import json, sys
one = json.load(sys.stdin)["peers"][0]["connections"][0]
print(one["bytes_sent"] // one["packets_sent"])'
}
exchange() {
  await 20 on island python3 files.py client 10.77.0.1
  for address in 10.77.0.1 fd77::1 fd77::1; do on island python3 files.py client $address; done
}
start city; start island; carries city; carries island
exchange
[ $(size city) -gt 3000 ] || fail "super-packets were cut: $(size city) bytes each"
# One end without offloads: the other sends it nothing but packets that fit its MTU.
kill $pid_island
sed -i 's/^mtu = .*/&\noffload = false/' island/island.toml
kill -9 $pid_city
start city; start island
await 60 sh -c '[ "$(grep -c "connection 0 carries" island.log)" -ge 2 ]'
exchange
[ $(size city) -le 1500 ] && [ $(size island) -le 1500 ] || fail "larger than the MTU: $(size city), $(size island)"
# And the other way round.
kill $pid_island $pid_city
sed -i '/^offload/d' island/island.toml
sed -i 's/^mtu = .*/&\noffload = false/' city/city.toml
start city; start island
await 60 sh -c '[ "$(grep -c "connection 0 carries" island.log)" -ge 3 ]'
exchange
for node in city island; do
  (cd $node && ip netns exec $node "$EKIDEN" tunnel status --json) | python3 -c '
import json, sys
one = json.load(sys.stdin)
assert one["unreadable"] == 0 and one["device_refused"] == 0, one'
done
