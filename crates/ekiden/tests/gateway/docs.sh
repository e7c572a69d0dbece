# As the guide says it, with the streams that it shows.
on router "$EKIDEN" gateway -c gateway.toml --check > check; grep -q "gateway.toml: ok" check
on router "$EKIDEN" gateway -c gateway.toml --show-config > shown.toml
on router "$EKIDEN" gateway -c shown.toml --check > /dev/null || fail "what is shown cannot be read"
start; [ "$(cat ready)" = $'device wan0\nready' ] || fail "$(cat ready)"
is "s['device'], s['groups'][0]['name'], s['groups'][0]['policy'], s['streams']" "('wan0', 'tokyo', 'delivered', [])"
on router "$EKIDEN" gateway status wan0 | grep -q "no stream of these groups has begun" || fail "why nothing happens is not told"
fetch 1000000 3
is "s['counters']['begun'], s['counters']['tracked'] > 50" "(3, True)"
on router "$EKIDEN" gateway status wan0 > table
grep -q "device wan0, by tcx" table && grep -q "tokyo" table && ! grep -q "has begun" table || fail "$(cat table)"
# One that stays is shown with its round trip; what is in no group is not.
on receiver python3 -c "
import socket
l = socket.create_server(('192.0.2.2', 5002)); print('up', flush=True); c = l.accept()[0]
while c.recv(65536): pass" > up & await 10 grep -q up up
on sender python3 -c "
import socket, time
c = socket.create_connection(('192.0.2.2', 5002))
for _ in range(100): c.sendall(bytes(1000)); time.sleep(0.1)" & sending=$!
on router python3 -c "import socket, time; c = socket.create_connection(('192.0.2.2', 5002)); time.sleep(20)" & other=$!
await 5 is "[(t['group'], t['receiver'], t['state'], t['rtt_us'] > 0) for t in s['streams']]" "[('tokyo', '192.0.2.2:5002', 'short', True)]"
on router "$EKIDEN" gateway status wan0 | grep "192.0.2.2:5002" | grep -q short || fail "its state is not shown"
kill $sending $other
kill $gateway; wait $gateway || fail "it ended with $?"
grep -q "packets passed" gateway.log || fail "no last line"
