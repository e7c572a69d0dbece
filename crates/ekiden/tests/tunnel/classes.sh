# TCP to one port, and everything that is not TCP, have connections of their own.
for node in city island; do
  cat >> $node/$node.toml <<'T'
connections = 1
T
done
sed -i 's/^connections = 1$/&\n[[peer.island.class]]\nname = "bulk"\nprotocol = "tcp"\nports = [5001]\nconnections = 2\n[[peer.island.class]]\nname = "voice"\nprotocol = "udp"/' city/city.toml
sed 's/peer.island.class/peer.city.class/' city/city.toml | sed -n '/^connections = 1/,$p' | tail -n +2 >> island/island.toml
start city; start island
await 30 sh -c '[ "$(grep -c "carries packets" island.log)" -ge 4 ]'
status() { on island "$EKIDEN" tunnel status --json | python3 -c "
import json, sys
c = json.load(sys.stdin)['peers'][0]['connections']
print($1)"; }
is() { [ "$(status "$1")" = "$2" ]; }
await 5 is "[one['class'] for one in c]" "[None, 'bulk', 'bulk', 'voice']"
before=$(status "[one['bytes_sent'] for one in c]")
on city iperf3 -s -1 -B 10.77.0.1 -p 5001 > /dev/null & sleep 1
on island iperf3 -c 10.77.0.1 -p 5001 -n 4M > /dev/null
on island python3 -c "
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
for _ in range(300): s.sendto(bytes(972), ('10.77.0.1', 9))"
echo_at city 10.77.0.1; await 20 ask island 10.77.0.1
sent() { status "[one['bytes_sent'] - was for one, was in zip(c, $before)]"; }
await 10 is "[one['bytes_sent'] - was > 299_000 for one, was in zip(c, $before)][3]" True
await 10 is "sum(one['bytes_sent'] - was for one, was in list(zip(c, $before))[1:3]) > 1_000_000" True
await 10 is "c[0]['bytes_sent'] - $before[0] < 100_000" True
await 10 is "c[3]['bytes_sent'] - $before[3] < 400_000" True
# Ends with other numbers of connections say so.
kill $pid_island; await 10 sh -c "! ip -n island link show ekiden0"; : > island.log
sed -i 's/^connections = 2/connections = 3/' island/island.toml
start island; await 20 grep -q "set the same .connections. at both ends" city.log
await 20 grep -q "it refuses this node; its log says why" island.log
