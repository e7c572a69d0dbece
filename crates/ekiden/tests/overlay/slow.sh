settle "a → b → c"
# It has shown what it carries.
fetch 6 data || true
# From now on b drops what comes from c faster than 1 Mbit/s.
begun=$(date +%s%N)
on b nft -f - <<T
table ip slow {
  chain in { type filter hook input priority 0; ip saddr $(getent hosts c | cut -d " " -f 1) limit rate over 125 kbytes/second drop; }
}
T
# One stream in three tries what may be better: of so many, one does.
while goes "a → b → c"; do
  fetch 2 data || true
  [ $(($(date +%s%N) - begun)) -lt 90000000000 ] || fail "streams still go $(path)"
done
echo "left after $((($(date +%s%N) - begun) / 1000000)) ms"
# Soon they take one that carries the file within seconds.
end=$((SECONDS + 60))
until fetch 6 data && cmp data got; do
  [ $SECONDS -lt $end ] || fail "no path carries 4 MB in 6 s: $(path)"
done
