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
  kill -$signal $gateway; wait $gateway || true
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
# The device goes: so does the gateway, and says so.
ip -n router link del wan0
code=0; wait $gateway || code=$?
[ $code = 4 ] && grep -q "the device 'wan0' is gone" gateway.log || fail "$code"
