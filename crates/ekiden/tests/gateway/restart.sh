# With `restart_within` programs and streams outlive the process, and the next one takes both over.
# The path of these namespaces has no delay.
echo 'shortest_rtt = "0s"' >> gateway.toml
sed -i '1i restart_within = "60s"' gateway.toml
start
on receiver timeout 60 python3 -c "
import socket
listener = socket.create_server(('192.0.2.2', 5002))
print('listening', flush=True)
connection = listener.accept()[0]
while data := connection.recv(1 << 16): connection.sendall(data)" > held & holder=$!
await 10 grep -q listening held
mkfifo asked; exec 9<> asked
on sender timeout 60 python3 -c "
import socket
connection = socket.create_connection(('192.0.2.2', 5002), timeout=10)
print('open', flush=True)
for line in open('asked'):
    connection.sendall(line.encode()); assert connection.recv(1 << 16)
    print('answered', flush=True)" > answers & asker=$!
await 10 grep -q open answers
for signal in KILL TERM; do
  await 5 is "len(s['streams'])" 1
  packets=$(of "s['counters']['tracked']")
  kill -$signal $gateway; wait $gateway || true
  [ $signal = KILL ] || grep -q "its programs stay on .* and go on for 60s" gateway.log || fail "$(tail gateway.log)"
  answered=$(grep -c answered answers || true)
  echo again >&9
  await 10 bash -c "[ \$(grep -c answered answers) -gt $answered ]"
  start
  is "s['streams'][0]['state'], s['counters']['tracked'] > $packets" "('watched', True)" || fail "the stream was not followed while the process was away: $(of s)"
done
await 10 grep -q "takes over the programs" gateway.log
# It cannot be removed under a process.
code=0; on router "$EKIDEN" gateway remove wan0 2> refused || code=$?
[ $code = 4 ] && grep -q "end its process first" refused || fail "$code"
kill $gateway; wait $gateway
# With other settings it begins anew.
echo 'repeats = 7' >> gateway.toml
start
await 10 grep -q "they are of another build, or of other settings" gateway.log
is "s['streams']" "[]" || fail "streams of other settings"
kill $gateway; wait $gateway
# What is left is told to who may know it, and taken away by who may.
code=0; on router "$EKIDEN" gateway status wan0 2> refused || code=$?
[ $code = 2 ] && grep -q "has left its programs there" refused || fail "$code: $(cat refused)"
code=0; on router setpriv --reuid 65534 --clear-groups "$EKIDEN" gateway remove wan0 2> refused || code=$?
[ $code = 4 ] && grep -q "run it as root" refused || fail "$code: $(cat refused)"
on router "$EKIDEN" gateway remove wan0 | grep -q "removed from wan0" || fail "not removed"
[ ! -e /sys/fs/bpf/ekiden ] || fail "$(find /sys/fs/bpf)"
code=0; on router "$EKIDEN" gateway remove wan0 2> refused || code=$?
[ $code = 2 ] && grep -q "left programs on the device 'wan0'" refused || fail "$code: $(cat refused)"
echo again >&9
await 10 bash -c "[ \$(grep -c answered answers) = 3 ]"
# Without the key it takes away what is there. A device that goes takes its pins along.
start; kill -9 $gateway; wait $gateway || true
sed -i /restart_within/d gateway.toml
start; kill $gateway; wait $gateway
[ ! -e /sys/fs/bpf/ekiden ] || fail "$(find /sys/fs/bpf)"
sed -i '1i restart_within = "60s"' gateway.toml
start
ip -n router link del wan0
code=0; wait $gateway || code=$?
[ $code = 4 ] && [ -z "$(ls /sys/fs/bpf/ekiden 2> /dev/null)" ] || fail "$code: $(find /sys/fs/bpf)"
# Pins that nobody else finds are told.
ip -n router link add wan0 type veth peer name wan1
! grep -q "mount namespace" gateway.log || fail "told without need"
rm -f ready
ip netns exec router "$EKIDEN" gateway -c gateway.toml > ready 2>> gateway.log & gateway=$!
await 10 grep -q '^ready$' ready
await 10 grep -q "pinned in a file system of this process.s own" gateway.log
kill $gateway; wait $gateway || true
# A user with the capabilities alone, who may not look there, starts one all the same.
sed -i /restart_within/d gateway.toml
chmod 700 /sys/fs/bpf; chmod 755 .; rm -f ready
nobody() { exec nsenter --net=/run/netns/router -- setpriv --reuid 65534 --clear-groups "$@"; }
capable="--inh-caps +bpf,+perfmon,+net_admin --ambient-caps +bpf,+perfmon,+net_admin"
(nobody $capable "$EKIDEN" gateway -c gateway.toml > ready 2>> gateway.log) & gateway=$!
await 10 grep -q '^ready$' ready
kill $gateway; wait $gateway || fail "it ended with $?"
# But not with pins.
sed -i '1i restart_within = "60s"' gateway.toml
code=0; (nobody $capable "$EKIDEN" gateway -c gateway.toml > ready 2> refused) || code=$?
[ $code = 4 ] && grep -q "needed for .restart_within. and .remove.: run it as root" refused || fail "$code: $(cat refused)"
# What a stranger has put in place of the pins is not touched.
chmod 1777 /sys/fs/bpf
mkdir -p others/gateway-wan0-$(stat -Lc %i /run/netns/router); chmod -R 777 others
(nobody ln -s "$PWD/others" /sys/fs/bpf/ekiden)
for action in "remove wan0" "-c gateway.toml"; do
  code=0; on router timeout 60 "$EKIDEN" gateway $action > ready 2> refused || code=$?
  [ $code = 4 ] && grep -q "user 65534 has put something else at /sys/fs/bpf/ekiden; remove it" refused || fail "$code: $(cat refused)"
done
[ -n "$(ls others)" ] || fail "it removed what is not ekiden's"
kill $asker $holder || true
