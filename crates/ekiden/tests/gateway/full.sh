# A full table leaves new streams alone; the log tells of it, and which table it is.
sed -i '1i ipv4_streams = 2' gateway.toml
start
on receiver python3 -c "
import socket
l = socket.create_server(('192.0.2.2', 5002)); print('up', flush=True); held = [l.accept()[0] for _ in range(5)]
held[-1].recv(1)" > up & await 10 grep -q up up
on sender python3 -c "
import socket, time
held = [socket.create_connection(('192.0.2.2', 5002)) for _ in range(5)]; time.sleep(60)" & sending=$!
await 10 is "s['counters']['begun'], s['counters']['full']" "(2, 3)"
on router "$EKIDEN" gateway status wan0 > table
grep -q "^new streams left alone, for their table was full: 3; a larger ipv4_streams (now 2)" table || fail "$(cat table)"
grep -q "10.1.0.2:[0-9]* to 192.0.2.2:5002" table || fail "$(cat table)"
await 10 grep -q "WARN.* the table of IPv4 streams is full (2): 3 new streams were left alone; ipv4_streams makes it larger" gateway.log
# More is told once, at the end.
fetch 1000 2
kill $gateway; wait $gateway
await 10 grep -q "full (2): 2 new streams" gateway.log
[ "$(grep -c "streams is full (2)" gateway.log)" = 2 ] || fail "told otherwise"
kill $sending
