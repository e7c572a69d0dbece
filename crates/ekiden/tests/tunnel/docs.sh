# Packets for the peer's network do not leave by another way while the tunnel is not there.
ip -n island route add blackhole 10.9.0.0/24 metric 4000
start city; start island
carries city; carries island
# Both families, both directions, and what is behind the city.
echo_at city 10.77.0.1; echo_at city fd77::1; echo_at island 10.77.0.2; echo_at server 10.9.0.2
await 20 ask island 10.77.0.1; await 20 ask island fd77::1; await 20 ask city 10.77.0.2; await 20 ask island 10.9.0.2
# Data is what it was. The server's segments fit into the tunnel although its own line takes larger ones.
head -c 20000000 /dev/urandom > data
on server python3 -m http.server 8000 > /dev/null 2>&1 &
await 20 on island curl -fsS -o got http://10.9.0.2:8000/data
cmp data got
# No capability is left.
grep -q '^CapPrm:.0000000000000000' /proc/$pid_city/status || fail "$(grep Cap /proc/$pid_city/status)"
# Nothing of it is left when it has ended.
ip -n island route get 10.9.0.2 | grep -q "dev ekiden0" || fail "$(ip -n island route)"
ip -n island link set ekiden0 down
code=0; wait $pid_island || code=$?
[ $code = 4 ] || fail "$code"
ip -n island route get 10.9.0.2 > said.log 2>&1 && fail "a packet finds another way: $(cat said.log)"
start island
ip -n island route get 10.9.0.2 | grep -q "dev ekiden0" || fail "$(ip -n island route)"
code=0; kill $pid_island; wait $pid_island || code=$?
[ $code = 0 ] || fail "$code"
await 10 sh -c "! ip -n island link show ekiden0"
ip -n island route show | grep -v blackhole | grep -q 10.9.0 && fail "a route is left"
start island; code=0; kill -INT $pid_island; wait $pid_island || code=$?
[ $code = 0 ] || fail "$code"
kill -9 $pid_city; await 10 sh -c "! ip -n city link show ekiden0"
exit 0
