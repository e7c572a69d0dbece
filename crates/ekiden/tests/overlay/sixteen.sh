# Sixteen sites in the lab: real nodes, each with a leg to each other. Few flows, for each stretch of each is probed before.
set -euo pipefail
fail() { echo "$*" >&2; exit 1; }
"$EKIDEN" overlay scenario sites-16.toml --flows 8 --rate-most 4Mbit/s --file 200KB --duration 8s > overlay-16.toml
"$EKIDEN" lab run overlay-16.toml --record lab.json > lab 2>&1 || fail "$(cat lab)"
python3 - <<'P'
import json
record = json.load(open("lab.json"))
assert len(record["flows"]) == 8 and all(flow["outcome"]["kind"] == "complete" for flow in record["flows"]), record["flows"]
assert len(record["overlay"]) == 8, record["overlay"]
assert sum(path["streams"] for of in record["overlay"] for path in of["streams"]) > 30, record["overlay"]
P
