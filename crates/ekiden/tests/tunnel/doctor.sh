# What a host costs a tunnel is said at its start, with --check, and by `ekiden doctor`.
# doctor CODE TEXT…: what it says of island.toml, and its exit code.
doctor() {
  local code=0 wanted=$1; shift
  (cd island && ip netns exec island timeout 60 "$EKIDEN" doctor -c island.toml --rate 1Mbit/s $options > ../said.log 2>&1) || code=$?
  [ $code = $wanted ] || fail "$code: $(cat said.log)"
  for text in "$@"; do grep -q -- "$text" said.log || fail "no '$text': $(cat said.log)"; done
}
options=
on island sysctl -qw net.ipv4.tcp_slow_start_after_idle=1 net.ipv4.tcp_sack=0
slow='net.ipv4.tcp_slow_start_after_idle is 1: .*`ekiden doctor --fix` sets it' sack='net.ipv4.tcp_sack is 0: '
(cd island && ip netns exec island "$EKIDEN" tunnel -c island.toml --check 2> ../check.log) | grep -q "island.toml: ok"
grep -q "$slow" check.log && grep -q "$sack" check.log || fail "$(cat check.log)"

# Nobody is there yet.
doctor 5 "device ekiden0: can be made" "path to 192.0.2.1:7100" "Connection refused"
start city
doctor 1 "^costs  net.ipv4.tcp_sack: 0" "^costs  net.ipv4.tcp_slow_start_after_idle: 1" \
  "^good   handshake with city: each end takes the other's key" "^good   MTU of the tunnel to city: 1500 at both ends" \
  "^good   round trip to city: "

grep "was refused" city.log && fail "the questions are no faults"
# A tunnel that runs goes on.
start island; carries island
await 10 grep -q "WARN.*$slow" island.log; await 10 grep -q "WARN.*$sack" island.log
options=--fix; doctor 1 "device ekiden0: there; a tunnel runs with it" "handshake with city: each end takes" \
  "net.ipv4.tcp_slow_start_after_idle = 0" "net.ipv4.tcp_sack = 1" || true; options=
[ "$(on island sysctl -n net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_sack | xargs)" = "0 1" ] || fail "nothing was set"
echo_at city 10.77.0.1; await 20 ask island 10.77.0.1
for node in island city; do
  [ "$(grep -c "connection 0 carries packets" $node.log)" = 1 ] || fail "the tunnel was disturbed"
  grep "connection 0 ended\|was replaced" $node.log && fail "the tunnel was disturbed"
done
(cd island && ip netns exec island "$EKIDEN" tunnel -c island.toml --check 2>&1) | grep "net.ipv4" && fail "still"
# What the other end does not allow is said at both ends: that it drops packets, and from where.
ip -n island address add 10.77.0.99/32 dev ekiden0
on island python3 -c "
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(('10.77.0.99', 0))
for _ in range(7): s.sendto(b'x', ('10.77.0.1', 7000))"
options=--wide; doctor 1 "^costs  packets to city: some dropped there" "city has dropped packets of this end"; options=
on city "$EKIDEN" tunnel status > said.log; grep -qx "island: 7 of these, the last from 10.77.0.99" said.log || fail "$(cat said.log)"
(cd city && ip netns exec city "$EKIDEN" doctor --wide -c city.toml > ../said.log 2>&1) || true
grep -A 1 "^costs  packets of island: 7 dropped" said.log | grep -q "not in .allowed. of \[peer.island\] here, 10.77.0.99 was" || fail "$(cat said.log)"
ip -n island address del 10.77.0.99/32 dev ekiden0
kill $pid_island; await 10 sh -c "! ip -n island link show ekiden0"

# Each fault is told.
cp island/island.toml right.toml
sed -i 's/^mtu = .*/mtu = 1400/' island/island.toml
doctor 5 "^FAILS  MTU of the tunnel to city" "its device has an MTU of 1500, and this node's 1400"
sed "s/$(key city)/sha256:$(printf '1%.0s' {1..64})/" right.toml > island/island.toml
doctor 5 "^FAILS  handshake with city" "$(key city)"
sed 's/^allowed/connections = 2\n&/' right.toml > island/island.toml
doctor 5 "^FAILS  handshake with city" "it refuses this node"
# Of what one address causes, one line in 10 s is logged, and then the last one.
await 20 grep -q "set the same .connections" city.log
cp right.toml island/island.toml
ip -n island link add ekiden0 type veth peer name ekiden9
doctor 4 "^FAILS  device ekiden0" "a device 'ekiden0' is there already"
ip -n island link del ekiden0
mount -t tmpfs none /dev/net 2> /dev/null || { mkdir -p empty && mount --bind empty /dev/net; }
doctor 4 "/dev/net/tun is not there"
umount /dev/net
code=0
(cd city && ip netns exec city setpriv --bounding-set -net_admin --inh-caps -net_admin "$EKIDEN" doctor -c city.toml > ../said.log 2>&1) || code=$?
grep -q "^note   CAP_NET_ADMIN for the tunnel: not held" said.log && grep -q "^note   way to island: " said.log || fail "$code: $(cat said.log)"
