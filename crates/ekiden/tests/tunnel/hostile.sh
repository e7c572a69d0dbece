start city; start island; carries island
echo_at city 10.77.0.1
await 20 ask island 10.77.0.1
# A stranger's key, a stranger's protocol, and silence on more connections than may wait: the peer is served meanwhile.
mkdir other && (cd other && "$EKIDEN" keygen node.key > key)
sed "s/10.77.0.2/10.77.0.3/; s/name = \"ekiden0\"/name = \"other0\"/" island/island.toml > other/other.toml
(cd other && exec ip netns exec router "$EKIDEN" tunnel -c other.toml > ready 2> ../other.log) & other=$!
await 20 grep -q "does not take this node's key" other.log
await 20 grep -q "none of this listener.s nodes; .* in a tunnel's file as .fingerprint. in a \[peer.NAME\]" city.log
printf 'GET / HTTP/1.0\r\n\r\n' | on router timeout 5 nc 192.0.2.1 7100 > /dev/null || true
await 20 grep -q "was refused" city.log
cat > silent.py <<'P'
import socket, time
held = []
for _ in range(100):
    held.append(socket.create_connection(("192.0.2.1", 7100)))
print("held", flush=True)
time.sleep(60)
P
on router python3 silent.py > silent.out & silent=$!
await 20 grep -q held silent.out
ask island 10.77.0.1 20 > /dev/null
# One of its own that must connect again finds a place.
kill -9 $pid_island; await 10 sh -c "! ip -n island link show ekiden0"
start island; await 30 ask island 10.77.0.1
kill $silent $other
# A packet from an address that the peer may not use is dropped and told of.
ip -n island address add 10.77.0.99/32 dev ekiden0
cat > foreign.py <<'P'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.99", 0))
s.sendto(b"x", ("10.77.0.1", 7000))
P
on island python3 foreign.py
await 10 grep -q "10.77.0.99, which is not among its allowed addresses" city.log
ask island 10.77.0.1 > /dev/null
# Ends that do not fit say why.
kill $pid_island; await 10 sh -c "! ip -n island link show ekiden0"
sed -i 's/^mtu = .*/mtu = 1400/' island/island.toml
start island
await 20 grep -q "set the same .mtu. in \[device\] at both ends" island.log
