# Nodes a, b and c on loopback, which know each other by etcd. Runs in a network namespace and a folder of its own; $EKIDEN is the program.
ip link set lo up
etcd=http://127.0.0.1:2379
serve_etcd() {
  (exec etcd --data-dir etcd --listen-client-urls $etcd --advertise-client-urls $etcd --listen-peer-urls http://127.0.0.1:2380 > etcd.out 2>&1) &
  pid_etcd=$!
  await 20 etcdctl --endpoints $etcd get x
}
export ETCDCTL_API=3
serve_etcd
id=$("$EKIDEN" overlay init blue --etcd $etcd)
[ "$("$EKIDEN" overlay init blue --etcd $etcd)" = "$id" ] || fail "an overlay that is there gets another id"

port=7000
for node in a b c d; do
  port=$((port + 1))
  "$EKIDEN" keygen $node.key > $node.print
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
to = ["*"]
via = "auto"
[overlay.etcd]
endpoints = ["$etcd"]
overlay = "blue"
id = "$id"
lease = "5s"
members_cache = "kept/$node.json"
address = "127.0.0.1:$port"
T
  [ $node = b ] || printf '[exit]\nallow = ["127.0.0.0/8"]\n' >> $node.toml
  "$EKIDEN" proxy -c $node.toml --check > /dev/null
done
start() {
  rm -f $1.ready   # of the process before
  (exec "$EKIDEN" proxy -c $1.toml > $1.ready 2>> $1.log) &
  declare -g pid_$1=$!
  await 20 grep -q '^ready$' $1.ready
}
members() { "$EKIDEN" overlay nodes --node $1 --json | grep '"name"' | grep -o '"[a-z]"' | tr -d '"\n'; }
has() { [ "$(members $1)" = "$2" ]; }
# What c is near to, the operator says.
admit() {
  local near=; [ $1 != c ] || near="--near 127.0.0.0/8"
  "$EKIDEN" overlay admit blue --etcd $etcd $1 "$(grep -o 'sha256:[0-9a-f]*' $1.print)" $near "${@:2}"
}

# A node that is not admitted is no member.
start a; start b; start c
admit a > /dev/null
[ "$(admit c)" = "admitted c to blue, near 127.0.0.0/8" ] || fail "what is said of c"
await 20 has a ac
admit b > /dev/null
for node in a b c; do await 20 has $node abc; done
"$EKIDEN" overlay nodes --node a | grep -Eq "^ c .* 127.0.0.1:7003" || fail "where c is, is not shown"

head -c 20000000 /dev/urandom > data
(exec python3 -m http.server --bind 127.0.0.1 8000 > /dev/null 2>&1) &
await 20 curl -fs -o /dev/null http://127.0.0.1:8000/a.toml
fetch() { curl -fsS -m 20 -x http://127.0.0.1:8001 -o got http://127.0.0.1:8000/$1; }
fetch data && cmp data got
goes_over_c() { fetch a.toml; "$EKIDEN" overlay status --node a | grep -q "a → c"; }
await 20 goes_over_c

# A member that says in its own record what it is near to takes nothing by that, and is none until its record is right again.
takes_nothing() { fetch a.toml && grep -q "node 'b' is ignored: its record has .near., which is for the operator" a.log; }
lease=$(etcdctl --endpoints $etcd lease grant 60 | cut -d ' ' -f 2)
claim="{\"member_format\":2,\"instance\":\"bb\",\"address\":\"127.0.0.1:7002\",\"fingerprint\":\"$(grep -o 'sha256:[0-9a-f]*' b.print)\",\"load\":0,\"near\":[\"127.0.0.1/32\"]}"
etcdctl --endpoints $etcd put --lease $lease /ekiden/blue/nodes/b "$claim" > /dev/null
await 10 takes_nothing
await 10 has a abc
# By the operator's word it does, and says at once that it will not connect there.
admit b --near 127.0.0.1/32 > /dev/null
await 10 grep -q "this node is near 127.0.0.1/32, and does not connect to a loopback address unless \[exit\] has allow" b.log
refused() { ! fetch a.toml 2> said; }
await 10 refused
"$EKIDEN" overlay expel blue --etcd $etcd b > /dev/null
await 10 has a ac
admit b > /dev/null
await 20 has a abc
fetch a.toml

# What is near a node that is not there is refused, and not connected to from the entry.
kill $pid_c; wait $pid_c || true
await 10 has a ab
refused || fail "a's client was connected from a to what is near c"
"$EKIDEN" overlay why --node a 127.0.0.1:8000 | grep -qx "127.0.0.1:8000: node c is near it, and is not there: streams to it are refused" || fail "why"
"$EKIDEN" overlay status --node a | grep -qx "node c is not there: streams to 127.0.0.0/8 are refused, unless another is near" || fail "status"
start c
await 20 has a abc
fetch a.toml

# The doctor looks at etcd and at the members.
code=0; "$EKIDEN" doctor -c a.toml --rate 1Mbit/s > found 2> said || code=$?
grep -q "etcd at $etcd: etcd 3" found && grep -q "handshake with c: it has the key" found && ! grep -q FAILS found || fail "the doctor: $code, $(cat found said)"

# One that joins later, or has another key, is let in by those that have had connections already.
let_in() {
  "$EKIDEN" doctor -c d.toml --rate 1Mbit/s > found 2> said || true
  grep -q "handshake with a: it has the key" found && grep -q "handshake with c: it has the key" found
}
admit d > /dev/null; start d
await 20 has a abcd; await 20 has c abcd; await 20 has d abcd
await 10 let_in
kill $pid_d; wait $pid_d || true
rm d.key; "$EKIDEN" keygen d.key > d.print
admit d --replace > /dev/null; start d
await 20 has a abcd; await 20 has c abcd; await 20 has d abcd
await 10 let_in
# One that is taken out is told that its key is not taken.
"$EKIDEN" overlay expel blue --etcd $etcd d > /dev/null
await 10 has a abc; await 10 has c abc
"$EKIDEN" doctor -c d.toml --rate 1Mbit/s > found 2> said || true
grep -q "a: it does not take this node's key" found || fail "what a node that is taken out is told: $(cat found said)"
kill $pid_d; wait $pid_d || true

# etcd is killed while a stream runs: that goes on, new ones are opened, and the members stay.
curl -fsS --limit-rate 2M -x http://127.0.0.1:8001 -o slow http://127.0.0.1:8000/data & running=$!
kill -9 $pid_etcd; wait $pid_etcd || true
end=$((SECONDS + 7))
while [ $SECONDS -lt $end ]; do fetch a.toml && cmp a.toml got; sleep 1; done
has a abc || fail "members were lost with etcd: $(members a)"
# A node that dies meanwhile is gone soon after etcd is back.
kill -9 $pid_b; wait $pid_b || true
serve_etcd; back=$SECONDS
await 30 has a ac; await 30 has c ac
echo "right again $((SECONDS - back)) s after etcd was back"
wait $running && cmp data slow || fail "the stream that ran did not arrive whole"

# One that comes back, and one that is expelled.
start b
await 20 has a abc
code=0; "$EKIDEN" overlay expel blue --etcd $etcd typo 2> said || code=$?
[ $code = 2 ] && grep -q "no node 'typo' is admitted to 'blue'; admitted are: a, b, c" said || fail "expelled who is not there: $code, $(cat said)"
code=0; "$EKIDEN" overlay expel bleu --etcd $etcd b 2> said || code=$?
[ $code = 2 ] && grep -q "has no overlay 'bleu'" said || fail "expelled from what is not there: $code, $(cat said)"
: > empty; chmod 600 empty
code=0; "$EKIDEN" overlay admit blue --etcd $etcd b "$(grep -o 'sha256:[0-9a-f]*' b.print)" --node-password-file empty 2> said || code=$?
[ $code = 3 ] && grep -q "empty.*must hold a password in one line" said || fail "an empty password: $code, $(cat said)"
[ "$("$EKIDEN" overlay admitted blue --etcd $etcd | cut -d ' ' -f 1 | tr -d '\n')" = abc ] || fail "who is admitted"
# A key is replaced only if that is said.
other=$("$EKIDEN" keygen other.key | grep -o 'sha256:[0-9a-f]*'); own=$(grep -o 'sha256:[0-9a-f]*' b.print)
[ "$(admit b)" = "admitted b to blue again" ] || fail "the same key again"
code=0; "$EKIDEN" overlay admit blue --etcd $etcd b $other 2> said || code=$?
[ $code = 2 ] && grep -q "node 'b' is admitted to 'blue' already, with the key $own: --replace" said || fail "another key: $code, $(cat said)"
"$EKIDEN" overlay admit blue --etcd $etcd b $other --replace | grep -qx "admitted b to blue again, with another key; before: $own" || fail "a replaced key"
"$EKIDEN" overlay admit blue --etcd $etcd b $own --replace > /dev/null
await 20 has a abc
"$EKIDEN" overlay expel blue --etcd $etcd b > /dev/null
await 10 has a ac
[ "$("$EKIDEN" overlay admitted blue --etcd $etcd | tr '\n' ' ')" = "a  $(grep -o 'sha256:[0-9a-f]*' a.print) c  $(grep -o 'sha256:[0-9a-f]*' c.print)  near 127.0.0.0/8 " ] || fail "who is admitted"
admit b > /dev/null; await 20 has a abc
# One that is told to end leaves at once, not after its lease.
kill $pid_b; wait $pid_b || true
await 4 has a ac

# Who is expelled does not stay in a file that can neither be replaced nor removed.
chmod 555 kept
"$EKIDEN" overlay expel blue --etcd $etcd c > /dev/null
await 10 has a a
taken_out() { ! grep -q '"c"' kept/a.json && grep -q "members_cache: kept/a.json cannot be written.*the nodes are taken out of it" a.log; }
await 10 taken_out
chmod 755 kept
admit c > /dev/null; await 20 has a ac

# A node that starts while etcd is away begins with the members that it knew; a damaged file is refused, and the node starts without it.
says() { "$EKIDEN" overlay status --node a | grep -Eq "$1"; }
kill -9 $pid_etcd; wait $pid_etcd || true
kill $pid_a; wait $pid_a || true
start a
await 10 has a ac
says "^members by members_cache, [0-9]+ s old: 2; no word from etcd yet$" || fail "how old its members are, is not told"
[ "$(stat -c %a kept/a.json)" = 600 ] || fail "others can read the members"
fetch a.toml && cmp a.toml got
# One that begins without such a file knows nobody, and sends nothing another way.
kill $pid_a; wait $pid_a || true
mv kept/a.json whole; start a
await 10 grep -q "no members are known, and streams whose path should be chosen are refused" a.log
refused || fail "a's client was connected from a while nobody is known"
"$EKIDEN" overlay why --node a 127.0.0.1:8000 | grep -q "the nodes of the overlay are not known yet: streams to it are refused" || fail "why, without members"
serve_etcd
await 20 says "^members by etcd at $etcd, for .*: 2$"
fetch a.toml
kill $pid_a; wait $pid_a || true
head -c 100 kept/a.json > half; cat half > kept/a.json
: > a.log; start a
await 20 says "^members by etcd .*: 2$"
[ "$(grep -c members_cache a.log)" = 1 ] && grep -q "is damaged.*remove it" a.log && cmp half kept/a.json || fail "a damaged file"

# What is wrong is said in a line.
wrong_ca() { # CODE TEXT ARGUMENTS…: of the operator's commands.
  code=0; "$EKIDEN" overlay admitted blue "${@:3}" 2> said || code=$?
  [ $code = $1 ] && [ "$(wc -l < said)" = 1 ] && grep -q -- "$2" said || fail "not $1, $2: $code, $(cat said)"
}
code=0; "$EKIDEN" overlay why --node a 'a b' 2> said || code=$?
[ $code = 2 ] && grep -q "'a b' is not an address or a host name" said || fail "a destination that is none: $code, $(cat said)"
code=0; "$EKIDEN" overlay nodes --node a 2> said > /dev/full || code=$?
[ $code = 3 ] && grep -q "standard output: No space left" said || fail "a full disk: $code, $(cat said)"
printf -- '-----BEGIN CERTIFICATE-----\nMAA=\n' > cut.pem
wrong_ca 2 "--ca-file: is needed for https://" --etcd https://127.0.0.1:2379
wrong_ca 3 "--ca-file: none.pem cannot be read" --etcd https://127.0.0.1:2379 --ca-file none.pem
wrong_ca 3 "--ca-file: cut.pem is cut off" --etcd https://127.0.0.1:2379 --ca-file cut.pem
wrong_ca 3 "--password-file: none cannot be read" --etcd $etcd --user root --password-file none
sed 's/^id = .*/id = "abc"/' b.toml > b3.toml
code=0; "$EKIDEN" proxy --check -c b3.toml > /dev/null 2> said || code=$?
[ $code = 3 ] && grep -q "id: 'abc' is no overlay's id" said && ! grep -q expected_id said || fail "an id that is none: $code, $(cat said)"
echo secret > open; chmod 644 open
sed 's/^lease/user = "x"\npassword_file = "open"\nlease/' b.toml > b2.toml
code=0; "$EKIDEN" proxy -c b2.toml > /dev/null 2> said || code=$?
[ $code = 3 ] && grep -q "password_file" said || fail "a password that others can read: $code, $(cat said)"
code=0; "$EKIDEN" proxy --check -c b2.toml > /dev/null 2> said || code=$?
[ $code = 3 ] && grep -q "password_file" said || fail "a check of that: $code, $(cat said)"
cp a.toml good; sed -i 's/^lease/user = "x"\npassword_file = "open"\nlease/' a.toml
kill -HUP $pid_a
await 5 grep -q "the configuration stays as it was: .*password_file" a.log
says "^members by etcd .*: 2$" || fail "a node with a wrong new file left"
mv good a.toml
sed -i "s/^id = .*/id = \"$(printf '0%.0s' $(seq 64))\"/" b.toml
: > b.log; start b
await 20 grep -q "overlay" b.log
code=0; "$EKIDEN" overlay init blue --etcd http://127.0.0.1:1 2> said || code=$?
[ $code = 5 ] && [ "$(wc -l < said)" = 1 ] && grep -q "cannot be reached" said || fail "an etcd that is not there: $code, $(cat said)"
code=0; "$EKIDEN" overlay init blue --etcd http://192.0.2.1:2379 2> said || code=$?
[ $code = 2 ] && grep -q -- "--etcd: .*without encryption" said || fail "an etcd without encryption: $code, $(cat said)"
