# Common to all tests of overlays. Runs in the lab at the client of scenarios/detour.toml, in a folder of its own; $EKIDEN is the program.
# Nodes a, b, c and d choose paths among each other; c is near the server.
tell() { on a "$EKIDEN" overlay why "$server"; }
on() { ip netns exec "$@"; }
server=$(getent hosts server | cut -d ' ' -f 1)

# The legs have the kernel's congestion control: with ekiden_far the direct way, which loses packets, would be as good as the detour.
for node in a b c d; do
  "$EKIDEN" keygen $node.key > /dev/null
  cat > $node.toml <<T
name = "$node"
key_file = "$node.key"
[tcp]
congestion = "kernel"
[listen.leg]
kind = "leg"
address = "0.0.0.0:7000"
[listen.web]
kind = "http"
address = "0.0.0.0:3128"
open = true
[[route]]
to = ["*"]
via = "auto"
[overlay]
members_file = "members.toml"
[exit]
allow = ["10.77.0.0/16"]
T
  near=; [ $node != c ] || near="--near $server"
  "$EKIDEN" overlay join members.toml -c $node.toml --address $node:7000 $near > /dev/null
done

# start NODE: $pid_NODE is its process.
start() {
  rm -f $1.ready   # of the process before
  (exec ip netns exec $1 "$EKIDEN" proxy -c $1.toml > $1.ready 2>> $1.log) &
  declare -g pid_$1=$!
  await 20 grep -q '^ready$' $1.ready
}
for node in a b c d; do start $node; done
head -c 4000000 /dev/urandom > data
(exec ip netns exec server python3 -m http.server 80 > /dev/null 2>&1) &
await 20 curl -fs -o /dev/null http://$server/members.toml

# fetch SECONDS FILE: what of it comes in that time.
fetch() { curl -s -m $1 -x http://a:3128 -o got http://$server/$2; }
# The path in use from a, as a → … → c.
path() { on a "$EKIDEN" overlay status | awk '/^ c /' | grep -oE 'a( → [b-d])+' | head -n 1; }
goes() { [ "$(path)" = "$1" ]; }
# settle PATH: streams of some seconds, until they take it.
settle() {
  local end=$((SECONDS + 240))
  until goes "$1"; do
    [ $SECONDS -lt $end ] || fail "streams do not go $1"
    fetch 3 data || true
  done
}
