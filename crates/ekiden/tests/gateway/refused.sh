# refused CODE WORDS: it does not start, and says why in one line.
refused() {
  local code=0
  on router timeout 60 "$EKIDEN" gateway -c gateway.toml > out 2> said || code=$?
  [ $code = $1 ] && grep -q "$2" said && [ "$(wc -l < said)" = 1 ] || fail "$code, not $1: $(cat said)"
}
code=0; on router "$EKIDEN" gateway status wan0 2> said || code=$?
[ $code = 2 ] && grep -q "no gateway runs on the device 'wan0'" said || fail "$code $(cat said)"
sed -i 's/wan0/wan7/' gateway.toml; refused 4 "gateway.toml:2: there is no network device 'wan7' here"
sed -i 's/wan7/wan0/' gateway.toml
# One that runs may be about to end: it is waited for, which is told before.
start; code=0; on router timeout 60 "$EKIDEN" gateway -c gateway.toml > out 2> said || code=$?
[ $code = 4 ] && grep -q "WARN.*waited for, 5s at most: a gateway runs" said || fail "$code: $(cat said)"
[ "$(tail -n 1 said | grep -c "gateway.toml:2: a gateway runs on the device 'wan0' already")" = 1 ] || fail "$(cat said)"
kill $gateway; wait $gateway
# Others' programs with its name are told apart from gateways.
hold() {
  rm -f held
  (exec nsenter --net=/run/netns/router -- python3 -c "
import os, socket, time
os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.bind('\\0ekiden/gateway/wan0'); $1
print('held', flush=True); time.sleep(60)" > held) & holder=$!
  await 10 grep -q held held
}
hold "s.listen()"; refused 4 "a program of user 65534 has taken the name of this device's gateway"
kill $holder; wait $holder || true
hold ""; refused 4 "a program that does not answer has taken the name of this device's gateway"
code=0; on router "$EKIDEN" gateway remove wan0 2> said || code=$?
[ $code = 4 ] && grep -q "a program that does not answer has taken the name" said || fail "$code $(cat said)"
kill $holder; wait $holder || true
# Too few open files are told as such, whatever it opens then.
for files in 12 24; do
  (ulimit -n $files; refused 4 "too many open files for this process: .ulimit -n.")
done
ip -n router tuntap add tun0 mode tun
sed -i 's/wan0/tun0/' gateway.toml; refused 4 "tun0 carries no Ethernet frames"
sed -i 's/tun0/wan0/' gateway.toml
sed -i '/^device/a ipv4_streams = 10000000' gateway.toml
code=0; on router bash -c "ulimit -v 200000; exec setpriv --bounding-set=-all --inh-caps=-all \"$EKIDEN\" gateway -c gateway.toml" 2> said || code=$?
[ $code = 4 ] && grep -q "lacks CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; it needs" said || fail "$code $(cat said)"
# The capabilities that it lacks are named, and no file is left.
sed -i '/^ipv4_streams/d' gateway.toml
mkdir files
for lacks in perfmon bpf net_admin; do
  code=0; name=CAP_${lacks^^}
  on router env TMPDIR="$PWD/files" setpriv --bounding-set=-sys_admin,-$lacks "$EKIDEN" gateway -c gateway.toml 2> said || code=$?
  [ $code = 4 ] && grep -q "the gateway lacks $name; it needs .* to start: run it as root" said || fail "$code $(cat said)"
done
[ -z "$(ls files)" ] || fail "$(ls files)"
# CAP_SYS_ADMIN stands for two of them.
rm -f ready
(exec nsenter --net=/run/netns/router -- setpriv --bounding-set=-bpf,-perfmon "$EKIDEN" gateway -c gateway.toml > ready 2>> gateway.log) & gateway=$!
await 20 grep -q '^ready$' ready
fetch 10000 2
is "s['counters']['begun']" 2 || fail "$(of s)"
kill $gateway; wait $gateway || fail "it ended with $?"
echo 'nothing = 1' >> gateway.toml; refused 3 "gateway.toml:[0-9]*: unknown field .nothing."
