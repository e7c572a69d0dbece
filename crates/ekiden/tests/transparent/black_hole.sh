# The path of the leg drops packets of more than 1400 bytes in both directions and says nothing, and no kernel looks for that.
printf 0123456789abcdef%.0s 1 2 3 4 > key && chmod 600 key
cat > island.toml <<T
name = "island"
$listeners
[peer.exit]
address = "10.2.0.2:7000"
plain_key_file = "key"
[[route]]
to = ["*"]
via = ["exit"]
T
cat > exit.toml <<T
name = "exit"
[listen.leg]
kind = "leg"
address = "10.2.0.2:7000"
plain_key_file = "key"
[exit]
allow = ["10.3.0.0/24"]
T
for end in "island wan0" "exit lan0"; do
  # Each packet by itself: several segments in one would count as a long packet.
  ip -n ${end% *} link set ${end#* } gso_max_segs 1
  on ${end% *} sysctl -qw net.ipv4.tcp_mtu_probing=0
  on ${end% *} nft -f - <<N
table inet hole {
  chain wide {
    type filter hook prerouting priority -400; policy accept;
    iifname ${end#* } meta length > 1400 counter drop
  }
}
N
done
node exit; leg=$pid
await exit 7000
node island
begin=$SECONDS
whole 10.3.0.2:8080
[ $((SECONDS - begin)) -le 15 ] || fail "it took $((SECONDS - begin)) s"
grep -q "exit: on the path to it segments of 1448 bytes do not arrive, and those of 1208 bytes do" island.log || fail "the cause is not told"
# It is remembered.
begin=$SECONDS
whole 10.3.0.2:8080
[ $((SECONDS - begin)) -le 5 ] || fail "the next stream took $((SECONDS - begin)) s"
[ "$(grep -c "do not arrive, and those of" island.log)" = 1 ] || fail "it was found out again"
stop $pid; stop $leg
