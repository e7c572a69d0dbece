# The line drops packets of more than 1400 bytes and says nothing. Ends find out which pass, whatever the kernel is told to do about it.
cat > hole.nft <<'N'
table inet hole {
  chain wide {
    type filter hook forward priority 0; policy accept;
    meta length > 1400 counter drop
  }
}
N
# Each packet by itself: the rule would take several segments in one for a long packet.
for end in "island eth0" "router line0" "router line1" "city eth0"; do
  ip -n ${end% *} link set ${end#* } gso_max_segs 1 gro_max_size 1500 2> /dev/null || ip -n ${end% *} link set ${end#* } gso_max_segs 1
done
cat > whole.py <<'P'
# Sends a megabyte to the echo at ADDRESS, which has to come back as it was within SECONDS: ADDRESS SECONDS
import os, socket, sys, threading, time
end = time.monotonic() + float(sys.argv[2])
connection = socket.create_connection((sys.argv[1], 6000), timeout=float(sys.argv[2]))
data, got = os.urandom(1_000_000), bytearray()
threading.Thread(target=connection.sendall, args=(data,), daemon=True).start()
while len(got) < len(data):
    connection.settimeout(max(end - time.monotonic(), 0.001))
    piece = connection.recv(1 << 16)
    assert piece, "it has ended"
    got += piece
assert got == data
P
whole() { on island python3 whole.py 10.77.0.1 $1; }
probing() { for node in city island; do on $node sysctl -qw net.ipv4.tcp_mtu_probing=$1; done; }
on router nft -f hole.nft
for setting in 0 1 2; do
  probing $setting; : > island.log; : > city.log
  start city; start island; carries island
  # It stays when the address goes and comes again.
  [ $setting != 0 ] || echo_at city 10.77.0.1
  await 10 ask island 10.77.0.1
  whole 12 || fail "nothing passed with tcp_mtu_probing = $setting"
  [ "$(grep -c "connection 0 carries packets" island.log)" = 1 ] || fail "the connection did not stay"
  # With 2 the end that dials has sent short ones itself.
  lost=1448; [ $setting != 2 ] || lost="more than 1208"
  found() { grep -q "segments of $lost bytes do not arrive.*those of 1208 bytes do" island.log; }
  if [ $setting = 2 ]; then
    # The kernel of the end that dials begins with segments that pass, and that of the other end mostly with full ones.
    sleep 4
    ! grep -q "do not arrive" island.log || found || fail "what passes is said not to"
  else
    await 10 found
  fi
  kill $pid_city $pid_island
done
# A path that gets narrower while the tunnel runs.
probing 0
on router nft delete table inet hole
: > island.log; start city; start island; carries island
await 10 ask island 10.77.0.1
on router nft -f hole.nft
whole 20 || fail "nothing passed after the path got narrower"
await 10 grep -q "segments of 1448 bytes do not arrive" island.log
# The doctor finds it too, beside the tunnel.
on island "$EKIDEN" doctor -c island/island.toml > doctor.out 2>&1 || true
grep -q "segments to city.*1220 bytes at most" doctor.out || fail "$(cat doctor.out)"
# An end whose device takes longer packets than the other's names what was sent, and not what it would have taken.
kill $pid_city $pid_island
for end in "island eth0" "router line0"; do ip -n ${end% *} link set ${end#* } mtu 9000; done
: > island.log; start city; start island
await 10 grep -q "segments of 1448 bytes do not arrive.*those of 1208 bytes do" island.log
