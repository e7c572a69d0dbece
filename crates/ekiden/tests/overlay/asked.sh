# Nodes paris and tokyo on loopback, and programs of other users that ask paris of paths. Runs in a network namespace and a folder of its own;
# $EKIDEN is the program, $EXAMPLE the guide's commands.
ip link set lo up
mount -t tmpfs none /run
mkdir /run/ekiden
socket=/run/ekiden/paths.sock

port=7000
for node in paris tokyo; do
  port=$((port + 1))
  "$EKIDEN" keygen $node.key > /dev/null
  cat > $node.toml <<T
name = "$node"
key_file = "$node.key"
[listen.leg]
kind = "leg"
address = "127.0.0.1:$port"
[listen.web]
kind = "http"
address = "127.0.0.1:$((port + 1000))"
[[route]]
to = [".secret.example"]
action = "refuse"
[[route]]
to = [".near.example"]
action = "direct"
[[route]]
to = ["*"]
via = "auto"
[exit]
allow = ["127.0.0.0/8"]
[overlay]
members_file = "members.toml"
T
  near=; [ $node = paris ] || near="--near .example.jp --near 127.0.0.0/8"
  "$EKIDEN" overlay join members.toml -c $node.toml --address 127.0.0.1:$port $near > /dev/null
done
cp paris.toml quiet.toml
echo "ask_socket = \"$socket\"" >> paris.toml
start() {
  rm -f $1.ready   # of the process before
  (exec "$EKIDEN" proxy -c $1.toml > $1.ready 2>> $1.log) &
  declare -g pid_$1=$!
  await 20 grep -q '^ready$' $1.ready
}
there() { [ -S $socket ]; }
gone() { [ ! -e $socket ]; }
start paris; start tokyo
await 5 there

# A node that its own members file does not name says so.
sed 's/paris/osaka/; s/7001/7003/; s/8001/8003/' quiet.toml > osaka.toml
"$EKIDEN" keygen osaka.key > /dev/null
start osaka
await 5 grep -q "this node, 'osaka', is not in .*members.toml" osaka.log
kill $pid_osaka; wait $pid_osaka
grep -q "is not in" paris.log && fail "$(cat paris.log)"

# So does one that is near what its exit refuses, before it starts too.
grep -v '^allow' tokyo.toml > shut.toml
"$EKIDEN" proxy --check -c shut.toml > /dev/null 2> said
grep -qx 'ekiden: this node is near 127.0.0.0/8, and does not connect to a loopback address unless \[exit\] has allow = \["127.0.0.0/8"\]' said || fail "near what is refused: $(cat said)"
"$EKIDEN" proxy --check -c tokyo.toml > /dev/null 2> said
[ ! -s said ] || fail "near what is allowed: $(cat said)"

# says ANSWER EXPRESSION: of the answer as `it`.
says() { python3 -c 'import json, sys; it = json.loads(sys.argv[1]); sys.exit(not eval(sys.argv[2]))' "$1" "$2" || fail "not $2: $1"; }
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
ask() { printf '%s\n' "$1" | nobody nc -N -w 5 -U $socket; }

# As the guide says, by another user; nothing is known yet.
answer=$(nobody bash -c "$EXAMPLE")
says "$answer" 'it["exit"] == "tokyo" and it["kind"] == "bulk" and it["path"] is None and it["direct"]["nodes"] == ["paris", "tokyo"]'

# Larger than what all buffers on the way hold.
head -c 30000000 /dev/zero > data
(exec python3 -m http.server --bind 127.0.0.1 8000 > /dev/null 2>&1) &
await 20 curl -fs -o /dev/null http://127.0.0.1:8000/paris.toml
# Reads so many bytes in a second. (curl --limit-rate reads what has come at once.)
cat > fetch.py <<'P'
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
s.settimeout(20)
s.connect(("127.0.0.1", 8001))
s.sendall(b"GET http://127.0.0.1:8000/data HTTP/1.0\r\n\r\n")
begun, got = time.monotonic(), 0
while piece := s.recv(65536):
    got += len(piece)
    time.sleep(max(0, begun + got / float(sys.argv[1]) - time.monotonic()))
assert got > 30000000, got
P
fetch() { python3 fetch.py $1; }
# A stream that lasts shows the leg, and the next one takes a path because of that.
placed() { fetch 10e6 && ask '{"to": "127.0.0.1:8000"}' | grep -q '"path":{'; }
await 30 placed
answer=$(ask '{"to": "127.0.0.1:8000"}')
says "$answer" 'it["path"]["nodes"] == ["paris", "tokyo"] and 0 <= it["path"]["since_s"] < 20'
says "$answer" 'all(0 < it["path"]["legs"][0][key] < 60e3 for key in ["rtt_ms", "age_s"]) and it["path"]["legs"][0]["loss"] >= 0'
# What comes back is known when tokyo has told it.
told() { fetch 10e6 && ask '{"to": "127.0.0.1:8000"}' | grep -Eq '"from":"tokyo","to":"paris","rate_bit_s":[a-z0-9]+,"carried_bit_s":[1-9]'; }
await 30 told
says "$(ask '{"to": "tokyo"}')" 'it["path"]["nodes"] == ["paris", "tokyo"]'
says "$(ask '{"to": "tokyo", "kind": "interactive"}')" 'it["kind"] == "interactive" and it["path"] is None'
says "$(ask '{"to": "www.near.example:80"}')" 'it["exit"] == "paris" and it["path"] == {"nodes": ["paris"], "legs": []}'

# `why` goes by the routes too.
why() { "$EKIDEN" overlay why "$1" --node paris | head -n 1; }
[ "$(why www.example.jp)" = "www.example.jp: the node near it is tokyo" ] || fail "$(why www.example.jp)"
[ "$(why a.secret.example)" = "a.secret.example: the route to .secret.example refuses it" ] || fail "$(why a.secret.example)"
[ "$(why www.near.example)" = "www.near.example: its route says so, so paris connects to it itself" ] || fail "$(why www.near.example)"
[ "$(why www.elsewhere.example)" = "www.elsewhere.example: no other node is near it, so paris connects to it itself" ] || fail "$(why www.elsewhere.example)"
[ "$(why tokyo)" = "tokyo: it is the node tokyo" ] || fail "$(why tokyo)"

# What is wrong is said in a line of JSON.
for wrong in '' 'nonsense' '{"to": "mars"}' '{"to": "a.secret.example:80"}' '{"to": "tokyo", "kind": "slow"}' "$(head -c 5000 /dev/zero | tr '\0' x)"; do
  answer=$(ask "$wrong") || fail "no answer to '$wrong'"
  [ "$(wc -l <<< "$answer")" = 1 ] && says "$answer" 'list(it) == ["error"]'
done

# Those that connect and say nothing, on both sockets, as often as they can, hold up neither streams nor others that ask.
cat > crowd.py <<'P'
import os, resource, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = {name: [] for name in [sys.argv[1], "\0ekiden/overlay/paris"]}
end = time.monotonic() + 60
while time.monotonic() < end:
    for name, those in held.items():
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        try:
            one.connect(name)
            those.append(one)
        except BlockingIOError:
            one.close()
        # Those that were given up make room for others.
        if len(those) > 3000:
            those.pop(0).close()
            print(end="." if len(those) == 3000 else "", flush=True)
P
(exec python3 crowd.py $socket > crowd) & crowd=$!
await 20 [ -s crowd ]
fetch 1e9
for question in status nodes status nodes; do
  begun=$EPOCHREALTIME
  "$EKIDEN" overlay $question --node paris > /dev/null
  echo $begun $EPOCHREALTIME
done > waits
# Each of a thousand in a row with a pause of a millisecond would be 4 s for one queue of the system; two seconds for each sixteen, minutes.
printf '{"to": "tokyo"}\n' | timeout 40 nc -N -U $socket | grep -q '"exit":"tokyo"' || fail "who is silent holds up others for long"
# Who holds root up does so each time; a busy machine does so now and then.
python3 -c 'import sys; took = min(float(there) - float(here) for here, there in map(str.split, sys.stdin)); print(f"status under a crowd: {took:.2f} s"); sys.exit(took > 4)' < waits || fail "strangers hold up root: $(cat waits)"
kill $crowd; wait $crowd || true

# The file: another node does not take it, a killed one leaves it for the next, one that ends takes it along, and so does a reload without it.
sed 's/:700/:710/; s/:800/:810/' paris.toml > other.toml
start other
await 5 grep -q "another process answers there" other.log
ask '{"to": "tokyo"}' > /dev/null
kill $pid_other; wait $pid_other || true
there || fail "a node that does not have the socket removes it"
kill -9 $pid_paris; wait $pid_paris || true
there || fail "the file of a killed node is gone"
start paris
await 5 ask '{"to": "tokyo"}'
cp quiet.toml paris.toml; kill -HUP $pid_paris
await 5 gone
echo "ask_socket = \"$socket\"" >> paris.toml; kill -HUP $pid_paris
await 5 there
# A file that somebody has removed is made again at the next reload.
rm $socket; kill -HUP $pid_paris
await 5 there
kill $pid_paris; wait $pid_paris || true
gone || fail "a node that ends leaves its socket"
