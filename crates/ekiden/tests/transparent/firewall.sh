# A router with a stateful packet filter that refuses what is not allowed, as the guide says it has to be set; and one that
# translates addresses, where the node connects as itself.
cat > island.toml <<T
name = "island"
$listeners
T
cp island.toml plain.toml
printf '%s\n' '[exit]' 'client_addresses = ["10.0.0.0/8", "fd00:1::/64"]' >> island.toml
mark=$("$EKIDEN" proxy -c island.toml --print-rules | grep -om1 '0x[0-9a-f]*')
on island nft -f - <<T
table inet filter {
  chain input {
    type filter hook input priority filter; policy drop;
    meta l4proto { icmp, ipv6-icmp } accept
    ct state invalid drop
    ct state established,related accept
    meta mark $mark accept
  }
  chain forward { type filter hook forward priority filter; policy accept; ct state invalid drop; }
  chain output { type filter hook output priority filter; policy accept; ct state invalid drop; }
}
T
node island
sees_client 10.1.0.2 10.3.0.2:8080
sees_client fd00:1::2 '[fd00:3::2]:8080'
whole 10.3.0.2:8080
whole '[fd00:3::2]:8080'
# Hosts in namespaces number their first bytes alike. Real ones do not, so that connection tracking cannot take the client's
# connection and the node's own, with the same addresses and ports, for one.
cat > number.py <<'P'
import socket
TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, SEND_QUEUE = 19, 20, 21, 2
for n in range(16):
    s = socket.socket()
    for option, value in (TCP_REPAIR, 1), (TCP_REPAIR_QUEUE, SEND_QUEUE), (TCP_QUEUE_SEQ, n << 28 | 1), (TCP_REPAIR, 0):
        s.setsockopt(socket.IPPROTO_TCP, option, value.to_bytes(4, "little"))
    s.settimeout(30)
    s.connect(("10.3.0.2", 8080))
    s.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = b"".join(iter(lambda: s.recv(65536), b""))
    assert answer.endswith(open("file", "rb").read()), (n, len(answer))
P
on client python3 number.py
until_accepted island 22
stop $pid
# The filter of the others stays.
[ "$(on island nft list tables)" = "table inet filter" ] || fail "$(on island nft list tables)"
sees 10.1.0.2 10.3.0.2:8080

on island nft -f - <<'T'
table inet nat {
  chain out {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "wan0" masquerade
  }
}
T
sees 10.2.0.1 10.3.0.2:8080
cp plain.toml island.toml && node island
before=$(accepted island)
sees 10.2.0.1 10.3.0.2:8080
whole 10.3.0.2:8080
whole '[fd00:3::2]:8080'
until_accepted island $((before + 5))
stop $pid
sees 10.2.0.1 10.3.0.2:8080
