# The line drops packets of more than 1400 bytes and says nothing: in both directions, or in one. What measures is told, whatever the kernel is
# told to do about it. The server's port says which way the hole is.
both=7300; back=7301; back_too=7302; forth=7303
cat > hole.nft <<N
table inet hole {
  chain wide {
    type filter hook forward priority 0; policy accept;
    tcp sport { $both, $back, $back_too } meta length > 1400 counter drop
    tcp dport { $both, $forth } meta length > 1400 counter drop
  }
}
N
# Each packet by itself: the rule would take several segments in one for a long packet.
for end in "island eth0" "router line0" "router line1" "city eth0"; do
  ip -n ${end% *} link set ${end#* } gso_max_segs 1 gro_max_size 1500 2> /dev/null || ip -n ${end% *} link set ${end#* } gso_max_segs 1
done
probing() { for node in city island; do on $node sysctl -qw net.ipv4.tcp_mtu_probing=$1; done; }
for port in $both $back $back_too $forth; do
  on city "$EKIDEN" measure server --open 100MB --listen 0.0.0.0:$port > $port.log 2>&1 &
  await 10 grep -q "^listening" $port.log
done
on router nft -f hole.nft

# measured PORT WORD OPTION…: what is said goes to $out.
measured() { out=$1$2.out; on island timeout 90 "$EKIDEN" measure $2 192.0.2.1:$1 --open "${@:3}" > $out 2>&1; }
# dropped WAY PORT WORD OPTION…: the measurement says that the way drops long segments.
dropped() {
  status=0; measured "${@:2}" || status=$?
  grep -q "segments of 1448 bytes do not arrive on the way $1" $out && ! grep -q "by a policer" $out || fail "$* $(cat $out)"
}
# The same, and it ends with that.
ends() { dropped "$@"; [ $status = 5 ] || fail "$* exits with $status: $(cat $out)"; }
carried() { measured "$@" || fail "$* $(cat $out)"; ! grep -q "do not arrive" $out || fail "$* $(cat $out)"; }

# All at once: a load on which nothing arrives is given up after 30 s.
probing 0
(ends forth $both path; ends back $both client --time 1s --way back) & first=$!
(carried $back client --time 1s --way forth; ends back $back path) & second=$!
(ends back $back_too client --time 1s --way both) & third=$!
(carried $forth client --time 1s --way back; ends forth $forth client --time 1s --way forth; ends forth $forth path) & fourth=$!
for one in $first $second $third $fourth; do wait $one; done

probing 1
for way in forth back; do dropped $way $both client --time 4s --way $way; done
probing 2
measured $both path || true
[ $(grep -c "MTU .*\(tcp_mtu_probing = 2\|do not arrive on the way\)" $out) = 2 ] || fail "$(cat $out)"
on router nft delete table inet hole
measured $both path || true
! grep -q "allows TCP no larger" $out || fail "$(cat $out)"
