printf 'keepalive = "1s"\n' | cat - city/city.toml > t && mv t city/city.toml
printf 'keepalive = "1s"\n' | cat - island/island.toml > t && mv t island/island.toml
start city; start island; carries island
on server python3 -m http.server 8000 > /dev/null 2>&1 &
head -c 30000000 /dev/urandom > data
await 20 on island curl -fsS -o /dev/null http://10.9.0.2:8000/echo.py
on router tc qdisc add dev line0 root tbf rate 40mbit burst 20000 limit 100000
on island curl -sS --retry 0 --max-time 240 -o got http://10.9.0.2:8000/data & fetch=$!
sleep 2
# The line is cut for so long that both ends give the connection up; the flow inside goes on afterwards.
ip -n router link set line0 down; sleep 30
ip -n router link set line0 up; ip -n router route replace 198.51.100.0/24 dev line0
await 60 sh -c '[ "$(grep -c "connection 0 carries" island.log)" -ge 2 ]'
# So it does when the node at the far end is killed and comes back.
kill -9 $pid_city; await 10 sh -c "! ip -n city link show ekiden0"
start city
await 60 sh -c '[ "$(grep -c "connection 0 carries" island.log)" -ge 3 ]'
wait $fetch || fail "the download has failed"
cmp data got
