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
# hole NODE DEVICE: drops what is long and comes from there.
hole() {
  on $1 nft -f - <<N
table inet hole {
  chain wide {
    type filter hook prerouting priority -400; policy accept;
    iifname $2 meta length > 1400 counter drop
  }
}
N
}
for end in "island wan0" "exit lan0"; do
  # Each packet by itself: several segments in one would count as a long packet.
  ip -n ${end% *} link set ${end#* } gso_max_segs 1
  on ${end% *} sysctl -qw net.ipv4.tcp_mtu_probing=0
  hole $end
done
node exit; leg=$pid
await 20 listens exit 7000
node island
begin=$SECONDS
whole 10.3.0.2:8080
[ $((SECONDS - begin)) -le 15 ] || fail "it took $((SECONDS - begin)) s"
await 20 grep -q "exit: on the path to it segments of 1448 bytes do not arrive, and those of 1208 bytes do" island.log
# It is remembered.
begin=$SECONDS
whole 10.3.0.2:8080
[ $((SECONDS - begin)) -le 5 ] || fail "the next stream took $((SECONDS - begin)) s"
[ "$(grep -c "do not arrive, and those of" island.log)" = 1 ] || fail "it was found out again"
stop $pid; stop $leg

# The path gets narrower when connections rest that full segments have passed on, and one direction is used.
for end in island exit; do on $end nft delete table inet hole; done
: > island.log; : > exit.log
node exit; leg=$pid
await 20 listens exit 7000
node island
for _ in 1 2 3 4; do on client curl -sSg --max-time 20 "http://10.3.0.2:8080/file" -o /dev/null & waiting+=($!); done
wait ${waiting[@]}
for end in "island wan0" "exit lan0"; do hole $end; done
on client curl -sSg --max-time 9 "http://10.3.0.2:8080/file" -o /dev/null && fail "long segments pass" || true
# The node that dials has sent nothing long, and still doubts the path to which nothing comes from the other.
on client curl -sSg --max-time 15 "http://10.3.0.2:8080/file" -o /dev/null || fail "the next download is lost too"
begin=$SECONDS
whole 10.3.0.2:8080
[ $((SECONDS - begin)) -le 12 ] || fail "it took $((SECONDS - begin)) s"
await 20 grep -q "exit: on the path to it segments of 1448 bytes do not arrive" island.log
begin=$SECONDS
for _ in 1 2 3 4 5; do whole 10.3.0.2:8080; done
# What had rested would take no end.
[ $((SECONDS - begin)) -le 40 ] || fail "what had rested was used: $((SECONDS - begin)) s"
kill -9 $pid $leg
