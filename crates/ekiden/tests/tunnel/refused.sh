# said CODE TEXT: what the tunnel of this configuration says, and its exit code.
said() {
  local code=0
  (cd city && ip netns exec city timeout 60 "$EKIDEN" tunnel -c $3 2> ../said.log > /dev/null) || code=$?
  [ $code = $1 ] && grep -q "$2" said.log || fail "$code: $(cat said.log)"
}
ip -n city link add ekiden0 type veth peer name ekiden9
said 4 "city.toml:4: \[device\]: a device 'ekiden0' is there already" city.toml
ip -n city link del ekiden0
sed 's/0.0.0.0:7100/203.0.113.9:7100/' city/city.toml > city/elsewhere.toml
said 5 "cannot listen on 203.0.113.9:7100" elsewhere.toml
# What is there already, or cannot be here, is told with its place and what to do.
ip -n city route add 10.88.0.0/24 via 192.0.2.254
sed 's/"10.77.0.2\/32"/&, "10.88.0.0\/24"/' city/city.toml > city/route.toml
said 4 "route.toml:11: \[peer.island\]: cannot route 10.88.0.0/24 to 'ekiden0': File exists.*: .ip route show 10.88.0.0/24. shows it" route.toml
on city sysctl -qw net.ipv6.conf.default.disable_ipv6=1
said 4 "city.toml:5: \[device\]: cannot give 'ekiden0' the address fd77::1/64: Permission denied.*IPv6 is off here" city.toml
said 4 "city.toml:5: \[device\]: cannot give 'ekiden0' the address fd77::1/64: Permission denied.*IPv6 is off here" "city.toml --check"
on city sysctl -qw net.ipv6.conf.default.disable_ipv6=0
printf '[tcp]\ncongestion = "nothing"\n' | cat city/city.toml - > city/control.toml
said 4 "control.toml:[0-9]*: \[tcp\]: congestion 'nothing' is not available: this kernel does not have it" control.toml
sed 's/^allowed/alowed/' city/city.toml > city/typo.toml
said 3 "typo.toml:.*: unknown field .alowed" typo.toml
mount -t tmpfs none /dev/net 2> /dev/null || { mkdir -p empty && mount --bind empty /dev/net; }
said 4 "/dev/net/tun is not there" city.toml
said 4 "/dev/net/tun is not there" "city.toml --check"
umount /dev/net
code=0
(cd city && ip netns exec city setpriv --bounding-set -net_admin --inh-caps -net_admin "$EKIDEN" tunnel -c city.toml 2> ../said.log) || code=$?
[ $code = 4 ] && grep -q "CAP_NET_ADMIN" said.log || fail "$code: $(cat said.log)"
ip -n city link show ekiden0 2> /dev/null && fail "a device is left"
# A device that somebody removes: the tunnel is over, and says so.
start city
# A second tunnel does not share the port, nor one address of it.
second() { # NUMBER ADDRESS
  local code=0
  sed "s/0.0.0.0:7100/$2/; s/ekiden0/other$1/; s/10.77/10.78/; s/fd77/fd78/" city/city.toml > city/second$1.toml
  (cd city && ip netns exec city timeout 60 "$EKIDEN" tunnel -c second$1.toml 2> ../second$1.log > /dev/null) || code=$?
  [ $code = 5 ] || fail "$code: $(cat second$1.log)"
  grep -q "second$1.toml:8: \[listen\]: cannot listen on .*7100: Address already in use.*which program has it" second$1.log
}
# Each waits a while: the first one might be about to end.
second 1 0.0.0.0:7100 & seconds=$!
second 2 192.0.2.1:7100 & seconds="$seconds $!"
second 3 [::]:7100 & seconds="$seconds $!"
for one in $seconds; do wait $one || fail "$(cat second*.log)"; done
ip -n city link del ekiden0
await 5 grep -q "the device 'ekiden0' is gone" city.log
code=0; wait $pid_city || code=$?
[ $code = 4 ] || fail "$code"
# A device that somebody takes down, however shortly: its routes would not come back.
start city
ip -n city link set ekiden0 down
ip -n city link set ekiden0 up 2> /dev/null || true
await 5 grep -q "the device 'ekiden0' is gone" city.log
code=0; wait $pid_city || code=$?
[ $code = 4 ] || fail "$code"
# So it is when the kernel had no room to tell: the tunnel did not read while devices changed. Meanwhile nothing else ends it.
for i in $(seq 500); do echo "link set lan0 alias number$i"; done > changes
drops() { on city awk '$4 == "00000001" { drops += $9 } END { exit !drops }' /proc/net/netlink; }
hears() { on city awk '$4 == "00000001" { found = 1 } END { exit !found }' /proc/net/netlink; }
overrun() { # COMMAND…: while the tunnel does not read.
  await 10 hears
  kill -STOP $pid_city
  until drops; do ip -n city -batch changes; done
  "$@"; kill -CONT $pid_city
}
flaps() { ip -n city link set ekiden0 down; ip -n city link set ekiden0 up; }
loses_one() { ip -n city route del 10.9.8.0/24 dev ekiden0; }
sed -i 's/^allowed = \[.*10.77.0.2[^]]*/&, "10.9.7.0\/24", "10.9.8.0\/24"/' city/city.toml
: > city.log; start city
overrun loses_one
# A new socket, which has lost nothing, hears what follows.
await 10 eval '! drops'
sleep 1
kill -0 $pid_city || fail "it has ended: $(cat city.log)"
overrun flaps
await 10 grep -q "the device 'ekiden0' is gone" city.log
code=0; wait $pid_city || code=$?
[ $code = 4 ] || fail "$code"
exit 0
