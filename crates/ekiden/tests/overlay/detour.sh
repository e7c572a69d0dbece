settle "a → b → c"
# Over b a stream gets nearly all of 20 Mbit/s, on the direct way less than half of it. The file arrives whole.
fetch 30 data && cmp data got || fail "the file did not arrive whole"
on a "$EKIDEN" overlay why $server > why
grep -q "the node near it is c" why && grep -q "bulk streams go over a → b → c" why || fail "not explained: $(cat why)"
grep -Eq "→ +a → b → c " why && grep -q " a → d → c " why && grep -q " a → c " why || fail "candidates are missing: $(cat why)"
on a "$EKIDEN" overlay nodes | grep -Eq "^ b .* b:7000" || fail "nodes are not shown"
on a "$EKIDEN" overlay status --json > status.json
python3 - <<'P'
import json
status = json.load(open("status.json"))
place, = status["exits"]
known = {"".join(of["path"]): of["sure_bit_s"] for of in place["candidates"]}
assert place["path"] == ["b", "c"], place
assert 10e6 < known["bc"] < 22e6 and known["bc"] > 2 * known["c"], known
P
# A destination that no node is near is connected to from here.
on a "$EKIDEN" overlay why 203.0.113.9 | grep -q "a connects to it itself" || fail "no exit is not explained"
code=0; on b "$EKIDEN" overlay status > said || code=$?
[ $code = 0 ] && grep -q "no stream has taken" said || fail "an idle node says: $(cat said)"
code=0; on server "$EKIDEN" overlay status 2> said || code=$?
[ $code = 2 ] && grep -q "no node of an overlay runs" said || fail "without a node: $code, $(cat said)"
