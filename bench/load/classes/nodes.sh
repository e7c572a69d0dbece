# Runs at the client of scenarios/classes.toml, in a folder of its own: starts two nodes and the server, then traffic.py with what is given.
# $CLASSED names the forwards that are of the class of their name.
set -euo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND" >&2; tail -n 5 *.log >&2 || true' ERR
. "$HERE/../../lib/two-nodes.sh"
port=9001
for pair in one:9000 eight:9000 interactive:9001 files:9002; do
  name=${pair%:*} class=
  case " $CLASSED " in *" $name "*) class=$name ;; esac
  forward $name $port ${pair#*:} $class
  port=$((port + 1))
done
start_nodes
serve "$HERE/traffic.py"
python3 -B "$HERE/traffic.py" "$@"
