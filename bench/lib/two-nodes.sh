# Nodes a and b of scenarios/classes.toml, each the other's peer, with the service classes $CLASSES. Runs at the client, in a folder of its own;
# $EKIDEN is the program.
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
# forward NAME PORT SERVERS_PORT [CLASS]: from port PORT of a over b to the server.
forward() {
  printf '[listen.%s]\nkind = "forward"\naddress = "0.0.0.0:%s"\nto = "%s:%s"\nvia = ["b"]\nopen = true\n' $1 $2 "$server" $3 >> a.toml
  [ -z "${4-}" ] || echo "class = \"$4\"" >> a.toml
}
# Starts both; their numbers go into a.pid and b.pid.
start_nodes() {
  for node in a b; do
    (exec ip netns exec $node "$EKIDEN" proxy -c $node.toml > $node.ready 2>> $node.log) &
    echo $! > $node.pid
  done
  for node in a b; do until grep -qs '^ready$' $node.ready; do sleep 0.1; done; done
}
# serve TRAFFIC: the server of bench/load/classes/traffic.py.
serve() {
  (exec ip netns exec server python3 -B "$1" serve) &
  until ip netns exec server ss -Hltn sport = 9002 | grep -q .; do sleep 0.1; done
}
