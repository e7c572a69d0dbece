# Sixteen sites in the lab: real nodes, each with a leg to each other.
set -euo pipefail
fail() { echo "$*" >&2; exit 1; }
"$EKIDEN" overlay scenario sites-16.toml --rate-most 4Mbit/s --file 200KB --duration 15s > overlay-16.toml
"$EKIDEN" lab run overlay-16.toml --record lab.json > lab 2>&1 || fail "$(cat lab)"
python3 - <<'P'
import json
record = json.load(open("lab.json"))
assert len(record["flows"]) == 16 and all(flow["outcome"]["kind"] == "complete" for flow in record["flows"]), record["flows"]
assert len(record["overlay"]) == 16, record["overlay"]
assert sum(path["streams"] for of in record["overlay"] for path in of["streams"]) > 50, record["overlay"]
P
