# Common to all scripts here. $EKIDEN is the program.
set -euo pipefail
# What a test tells of the nodes when it fails, besides their logs.
tell() { :; }
trap 'echo "line $LINENO: $BASH_COMMAND" >&2; tell >&2 || true; tail -n 20 *.log >&2 || true' ERR
fail() { echo "$*" >&2; tell >&2 || true; tail -n 20 *.log >&2; exit 1; }
# await SECONDS COMMAND…: until it succeeds.
await() {
  local end=$((SECONDS + $1)); shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "waited in vain for: $*"
    sleep 0.2
  done
}
