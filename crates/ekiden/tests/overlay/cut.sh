settle "a → b → c"
# cut_leg, mend: nothing passes between b and c, and neither end is told.
far=$(getent hosts c | cut -d " " -f 1)
cut_leg() {
  on b nft -f - <<T
table ip cut {
  chain out { type filter hook output priority 0; ip daddr $far drop; }
  chain in { type filter hook input priority 0; ip saddr $far drop; }
}
T
}
mend() { on b nft delete table ip cut; }

# While a stream is on it: new streams go another way soon, and each of them is opened.
head -c 60000000 /dev/zero > big
fetch 60 big & running=$!
sleep 2
begun=$(date +%s%N)
cut_leg
until goes "a → d → c" || goes "a → c"; do
  fetch 5 members.toml || fail "a stream was not opened while a leg is cut"
  [ $(($(date +%s%N) - begun)) -lt 20000000000 ] || fail "streams still go $(path)"
done
echo "left after $((($(date +%s%N) - begun) / 1000000)) ms"
kill $running; wait $running || true
mend

# While it is idle: the first stream that fails to open on it takes the next path.
settle "a → b → c"
sleep 5
cut_leg
begun=$(date +%s%N)
fetch 15 members.toml && cmp members.toml got || fail "the first stream after a cut did not come about"
echo "the first stream on an idle leg that was cut took $((($(date +%s%N) - begun) / 1000000)) ms"
for i in 1 2 3; do fetch 3 members.toml || fail "stream $i after it"; done
mend

# A node that is killed is left too.
settle "a → b → c"
kill -9 $pid_b; wait $pid_b || true
for i in 1 2 3; do fetch 5 members.toml || fail "stream $i after b was killed"; done
goes "a → b → c" && fail "streams still go over a node that is gone"
start b
settle "a → b → c"
