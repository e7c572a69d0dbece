# cut_leg NODE OTHER: nothing passes between them any more, and neither end is told.
cut_leg() {
  local other=$(getent hosts $2 | cut -d " " -f 1)
  on $1 nft -f - <<T
table ip cut {
  chain out { type filter hook output priority 0; ip daddr $other drop; }
  chain in { type filter hook input priority 0; ip saddr $other drop; }
}
T
}

# While it is idle: the first stream that fails to open on it takes the next path.
settle "a → b → c"
sleep 5
cut_leg b c
begun=$(date +%s%N)
fetch 25 members.toml && cmp members.toml got || fail "the first stream after a cut did not come about"
echo "the first stream on an idle leg that was cut took $((($(date +%s%N) - begun) / 1000000)) ms"
for i in 1 2 3; do fetch 15 members.toml || fail "stream $i after it"; done
await 10 bash -c 'ip netns exec a "$EKIDEN" overlay nodes | grep -q "the leg from b to c has failed"'
# Until another path is chosen the one that was in use is named, as one that has failed.
is_left() { ! goes "a → b → c" || tell | grep -q "that path has failed"; }
await 10 is_left
# Streams of some seconds take another.
end=$((SECONDS + 60))
while goes "a → b → c"; do
  [ $SECONDS -lt $end ] || fail "streams still go a → b → c"
  fetch 3 data || true
done

# While a stream is on it: new streams go another way soon, and each of them is opened.
head -c 60000000 /dev/zero > big
fetch 60 big & running=$!
sleep 3
before=$(path)
begun=$(date +%s%N)
case "$before" in
  *" → d → c") cut_leg d c ;;
  "a → c") cut_leg a c ;;
  *) fail "streams go $before" ;;
esac
while goes "$before"; do
  # With both other ways cut a stream waits for two nodes in turn.
  fetch 25 members.toml || fail "a stream was not opened while a leg is cut"
  [ $(($(date +%s%N) - begun)) -lt 40000000000 ] || fail "streams still go $before"
done
echo "left $before after $((($(date +%s%N) - begun) / 1000000)) ms"
kill $running; wait $running || true
