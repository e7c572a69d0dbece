# Whatever way it ends, the device has none of its programs, and streams go on.
links() { python3 - <<'P'
import glob, re
# Links of all processes here: each is a descriptor with a kind and a device in its fdinfo.
found = 0
for info in glob.glob("/proc/[0-9]*/fdinfo/*"):
    try:
        text = open(info).read()
    except OSError:
        continue
    found += "link_type:\ttcx" in text
print(found)
P
}
for signal in TERM INT KILL; do
  start
  [ "$(links)" = 2 ] || fail "$(links) links while it runs"
  code=0; kill -$signal $gateway; wait $gateway || code=$?
  [ $code = 0 ] || [ $signal = KILL ] || fail "$signal: it ended with $code"
  await 5 [ "$(links)" = 0 ]
  fetch 100000 1
done
# A stopped one gives no word: windows and streams are as without it, and it goes on afterwards.
start
kill -STOP $gateway; sleep 2.5
fetch 100000 2
kill -CONT $gateway
await 5 is "s['counters']['begun']" 0
fetch 100000 2
await 5 is "s['counters']['begun']" 2
# The packets of that time are told.
await 10 grep -q "packets have passed untouched" gateway.log
is "s['counters']['unkept'] > 0" True
on router "$EKIDEN" gateway status wan0 | grep -q "packets passed untouched" || fail "not shown"
kill $gateway; wait $gateway
# The device is made anew, of the same name and number.
ip -n router link add other index 77 type veth peer name peer
sed -i 's/wan0/other/' gateway.toml; start
kill -STOP $gateway
ip -n router link del other; ip -n router link add other index 77 type veth peer name peer
kill -CONT $gateway
code=0; wait $gateway || code=$?
[ $code = 4 ] && grep -q "programs are not on the device 'other' any more" gateway.log || fail "$code"
sed -i 's/other/wan0/' gateway.toml; start
# The device goes: so does the gateway, and says so.
ip -n router link del wan0
code=0; wait $gateway || code=$?
[ $code = 4 ] && grep -q "the device 'wan0' is gone" gateway.log || fail "$code"
# Nobody reads that it is ready: it works, and ends, all the same.
ip -n router link show wan0 > /dev/null 2>&1 || ip -n router link add wan0 type veth peer name wan1
mkfifo unread; exec 8<> unread
python3 -c "
import os
os.set_blocking(8, False)
try:
    while True: os.write(8, b'x' * 4096)
except BlockingIOError: pass"
(exec nsenter --net=/run/netns/router -- "$EKIDEN" gateway -c gateway.toml > unread 2>> gateway.log) & gateway=$!
await 20 is "s['hook'] != ''" True
kill $gateway; wait $gateway || fail "it ended with $?"
