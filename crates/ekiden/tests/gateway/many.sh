# Many half-open streams: their status is asked for again and again, and they lose their places; the gateway's word is never late.
sed -i '1i ipv4_streams = 50000' gateway.toml
start
# Not for the router's address: the programs see them before the router drops them.
on far python3 - <<'P'
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(("line0", 0))
tcp = bytes([0x13, 0x88, 0, 80]) + bytes(8) + bytes([0x50, 2, 0xff, 0xff, 0, 0, 0, 0])
for i in range(30000):
    ip = bytes([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 2, 10, 1, i >> 8, i & 255])
    s.send(b"\2\0\0\0\0\7" + b"\2\0\0\0\0\1" + b"\x08\0" + ip + tcp)
P
await 5 is "s['groups'][0]['streams'], len(s['streams']), s['streams_not_listed']" "(30000, 1000, 29000)"
on router "$EKIDEN" gateway status wan0 | grep -q "and 29000 streams" || fail "not told"
for _ in {1..10}; do of "s['running_s']" > /dev/null; done
fetch 100000 2
await 30 is "s['groups'][0]['streams']" 0
fetch 100000 2
is "s['counters']['begun'], s['counters']['unkept'], s['counters']['full']" "(30004, 0, 0)" || fail "$(of "s['counters']")"
