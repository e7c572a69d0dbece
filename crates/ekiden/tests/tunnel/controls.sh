# A limit of the rate bounds what a connection sends, and the tunnel's own queue has what is too much.
sed -i 's/^\[peer/[tcp]\npacing = "9Mbit\/s"\n[peer/' island/island.toml
start city; start island; carries city; carries island
on city iperf3 -s -1 -B 10.77.0.1 > /dev/null & sleep 1
on island iperf3 -c 10.77.0.1 -t 4 --json > load.json
python3 - <<'P'
import json
rate = json.load(open("load.json"))["end"]["sum_received"]["bits_per_second"] / 1e6
assert 6 < rate < 10, rate
P
# ekiden's own congestion controls are in the kernel while the tunnel lives.
stop() { kill $pid_island; await 10 sh -c "! ip -n island link show ekiden0"; : > island.log; }
in_kernel() { "$EKIDEN" congestion status --json | python3 -c "
import json, sys
print(any(one['registered'] for one in json.load(sys.stdin) if one['name'] == 'ekiden_hstcp'))"; }
stop
before=$(in_kernel)
sed -i 's/^pacing = .*/congestion = "ekiden_hstcp"\n[congestion.hstcp]\nlow_window = 40/' island/island.toml
code=0; "$EKIDEN" congestion load ekiden_hstcp > said.log 2>&1 || code=$?
[ $code = 4 ] && { echo "this kernel takes none of ekiden's congestion controls: $(cat said.log)"; exit 0; }
[ $before = True ] || "$EKIDEN" congestion unload ekiden_hstcp > /dev/null
start island; carries island
[ $(in_kernel) = True ] || fail "it is not in the kernel"
on island "$EKIDEN" tunnel status --json | grep -q '"congestion": "ekiden_hstcp"' || fail "it is not used"
[ $before = True ] || grep -q "low_window.* 40 " <("$EKIDEN" congestion status) || fail "$("$EKIDEN" congestion status)"
kill -9 $pid_city; await 10 sh -c "! ip -n city link show ekiden0"; start city
await 60 sh -c '[ "$(grep -c "connection 0 carries" island.log)" -ge 2 ]'
stop
[ $before = True ] || await 60 eval '[ $(in_kernel) = False ]' # other tests use it, too
