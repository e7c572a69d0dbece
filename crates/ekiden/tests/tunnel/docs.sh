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
kill $pid_island; await 10 sh -c "! ip -n island link show ekiden0"
ip -n island route show | grep -q 10.9.0 && fail "a route is left"
kill -9 $pid_city; await 10 sh -c "! ip -n city link show ekiden0"
exit 0
