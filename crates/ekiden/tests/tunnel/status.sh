# The status counts what goes through, and goes on counting when a connection has broken and come again.
status() { on $1 "$EKIDEN" tunnel status --json; }
# of NODE EXPRESSION: a value in its status; `s` is all of it, `c` the first connection.
of() { status $1 | python3 -c "import json, sys; s = json.load(sys.stdin); c = s['peers'][0]['connections'][0]; print(($2))"; }
is() { [ "$(of $1 "$2")" = "$3" ]; }
code=0; status city 2> said.log || code=$?
[ $code = 2 ] && grep -q "no tunnel with the device 'ekiden0' runs here" said.log || fail "$code $(cat said.log)"
for node in city island; do printf '[tcp]\ncongestion = "reno"\n' >> $node/$node.toml; done
start city
await 5 is city "s['device'], s['name'], s['peers'][0]['name'], c['number'], c['is_up'], c['remote']" "('ekiden0', 'city', 'island', 0, False, None)"
# What is sent while there is no connection is lost, and told as that; what no peer has, as that.
send() { on $1 python3 -c "
import socket, sys
s = socket.socket(type=socket.SOCK_DGRAM)
for _ in range($3): s.sendto(bytes(972), ('$2', 9))"; }
lost=$(of city "c['lost']"); unroutable=$(of city "s['unroutable']")
send city 10.77.0.2 5; send city 10.77.0.200 3
await 5 is city "c['lost'] - $lost, s['unroutable'] - $unroutable >= 3, c['packets_sent']" "(5, True, 0)"
# What goes to all is for nobody in particular: not counted.
unroutable=$(of city "s['unroutable']")
on city python3 -c "
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.77.0.1'))
for _ in range(50): s.sendto(b'x', ('224.0.0.9', 9))"
sleep 0.5; is city "s['unroutable'] - $unroutable < 50" True || fail "multicast is counted as unroutable"
start island; carries city; carries island
# Neighbours are looked for now and then, so there may be a few packets more.
send island 10.77.0.1 100
await 5 is island "100 <= c['packets_sent'] < 120, 100_000 <= c['bytes_sent'] < 105_000, c['queue_packets'], c['dropped']" "(True, True, 0, 0)"
await 5 is city "100 <= c['packets_received'] < 120, 100_000 <= c['bytes_received'] < 105_000" "(True, True)"
await 5 is island "c['is_up'], c['remote'], c['congestion'], c['rtt_us'] > 0, c['rtt_max_us'] >= c['rtt_min_us'] > 0, c['cwnd'] > 0" "(True, '192.0.2.1:7100', 'reno', True, True, True)"
on island "$EKIDEN" tunnel status --wide > table; grep -q "city 0 .*192.0.2.1:7100" table || fail "$(cat table)"
grep -q "packets had no peer" table || fail "$(cat table)"
# Whoever asks and does not read, or talks, does no harm.
cat > rude.py <<'P'
import socket, time
def ask():
    s = socket.socket(socket.AF_UNIX)
    s.connect("\0ekiden/tunnel/ekiden0")
    return s
held = [ask() for _ in range(20)]
for s in held:
    try:
        s.send(b"GET / HTTP/1.0\r\n\r\n" * 100)
    except BrokenPipeError:
        pass
print("held", flush=True)
time.sleep(60)
P
ip netns exec island python3 rude.py > rude.out & rude=$!
await 10 grep -q held rude.out
before=$(of island "c['packets_sent']")
send island 10.77.0.1 10
await 5 is island "c['packets_sent'] >= $before + 10" True
kill $rude
# A process that is stopped says nothing.
kill -STOP $pid_island
code=0; on island "$EKIDEN" tunnel status 2> said.log || code=$?
kill -CONT $pid_island
[ $code = 1 ] && grep -q "the tunnel 'ekiden0' gives no answer within 10 s" said.log || fail "$code $(cat said.log)"
# Another user is refused.
code=0; on island setpriv --reuid 65534 --clear-groups "$EKIDEN" tunnel status 2> said.log || code=$?
[ $code = 4 ] && grep -q "answers root and its own user alone" said.log || fail "$code $(cat said.log)"
# The counts go on after the node at the other end has come again.
before=$(of island "c['packets_sent']")
kill -9 $pid_city; await 10 is island "c['is_up'], c['remote']" "(False, None)"
await 10 sh -c "! ip -n city link show ekiden0"; start city
await 30 is island "c['is_up']" True
send island 10.77.0.1 10; await 5 is island "c['packets_sent'] >= $before + 10" True
code=0; on router "$EKIDEN" tunnel status 2> said.log || code=$?
[ $code = 2 ] || fail "another network namespace finds the tunnel"
# A process that has given up the device may keep the name of its status for a moment longer: the next one waits for it.
kill $pid_city; wait $pid_city || true
ip netns exec city python3 -c "
import socket, time
s = socket.socket(socket.AF_UNIX)
s.bind('\0ekiden/tunnel/ekiden0')
s.listen()
print('held', flush=True)
time.sleep(2)" > held.out & held=$!
await 10 grep -q held held.out
start city
is city "s['name']" city || fail "no status after another process had its name"
wait $held
