# Runs at the client of scenarios/classes.toml, in a folder of its own: starts two nodes and the server, then client.py with what is given.
set -euo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND" >&2; tail -n 5 *.log >&2 || true' ERR
server=$(getent hosts server | cut -d ' ' -f 1)
for node in a b; do "$EKIDEN" keygen $node.key > $node.print; done
for node in a b; do
  other=b; [ $node = a ] || other=a
  print=$(grep -oE 'sha256:[0-9a-f]+' $other.print)
  cat > $node.toml <<T
name = "$node"
key_file = "$node.key"
[listen.leg]
kind = "leg"
address = "0.0.0.0:7000"
nodes = { $other = "$print" }
[peer.$other]
address = "$other:7000"
fingerprint = "$print"
[exit]
allow = ["10.77.0.0/16"]
$CLASSES
T
done
# The server's ports: 9000 sends without end, 9001 answers each byte with 2000, 9002 sends what is asked for and ends.
port=9001
for pair in one:9000 eight:9000 interactive:9001 files:9002; do
  name=${pair%:*}
  printf '[listen.%s]\nkind = "forward"\naddress = "0.0.0.0:%s"\nto = "%s:%s"\nvia = ["b"]\nopen = true\n' $name $port "$server" ${pair#*:} >> a.toml
  case " $CLASSED " in *" $name "*) echo "class = \"$name\"" >> a.toml ;; esac
  port=$((port + 1))
done
for node in a b; do (exec ip netns exec $node "$EKIDEN" proxy -c $node.toml > $node.ready 2>> $node.log) & done
for node in a b; do until grep -q '^ready$' $node.ready; do sleep 0.1; done; done
(exec ip netns exec server python3 -B "$HERE/traffic.py" serve) &
until ip netns exec server ss -Hltn sport = 9002 | grep -q .; do sleep 0.1; done
python3 -B "$HERE/traffic.py" "$@"
