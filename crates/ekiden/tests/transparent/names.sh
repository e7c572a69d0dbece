# An exit finds names: by the hosts file, then by a name server, whose answers it keeps for as long as they count. An address that is
# silent does not hold up one that answers.
cat > dns.py <<'P'
# A name server on 127.0.0.1:53; writes every question into dns.log.
import socket, struct
NAMES = {
    b"both.test": (600, ["10.3.0.2", "fd00:3::2"]),
    b"silent.test": (600, ["10.3.0.2", "fd00:3::3"]),
    b"dead.test": (600, ["10.3.0.3", "fd00:3::3"]),
    b"short.test": (1, ["10.3.0.2"]),
}
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    said, client = server.recvfrom(2000)
    labels, at = [], 12
    while said[at]:
        labels.append(said[at + 1:at + 1 + said[at]].lower())
        at += 1 + said[at]
    name, kind = b".".join(labels), struct.unpack(">H", said[at + 1:at + 3])[0]
    with open("dns.log", "a") as log:
        print(name.decode(), {1: "A", 28: "AAAA"}.get(kind, kind), file=log)
    ttl, addresses = NAMES.get(name, (60, []))
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    answers = [socket.inet_pton(family, a) for a in addresses if (":" in a) == (kind == 28)]
    # An answer refers to the question's name; without one, the authority says for how long that counts (RFC 2308).
    records = b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, ttl, len(a)) + a for a in answers)
    soa = b"" if answers else struct.pack(">BHHIH", 0, 6, 1, 60, 22) + b"\0\0" + struct.pack(">5I", 1, 1, 1, 1, 60)
    flags = 0x8580 if name in NAMES else 0x8583
    head = said[:2] + struct.pack(">HHHHH", flags, 1, len(answers), bool(soa), 0)
    server.sendto(head + said[12:at + 5] + records + soa, client)
P
: > dns.log
on exit python3 dns.py 2> dns-errors.log &
await 20 sh -c 'ip netns exec exit ss -Hlun "sport = :53" | grep . > /dev/null'
echo "nameserver 127.0.0.1" > resolv.conf
mount --bind resolv.conf /etc/resolv.conf
echo "127.0.0.1 localhost" > hosts
mount --bind hosts /etc/hosts
cat > exit.toml <<'T'
[listen.web]
kind = "http"
address = "0.0.0.0:3128"
open = true
[limits]
connect = "20s"
[exit]
allow = ["10.0.0.0/8", "fd00::/16"]
T
node exit
# Packets to the second address of the server disappear.
on server nft 'add table inet t; add chain inet t in { type filter hook input priority 0; }
add rule inet t in ip6 daddr fd00:3::3 drop; add rule inet t in ip daddr 10.3.0.3 drop'
get() { on client curl -sS --max-time 60 -p -x http://10.2.0.2:3128 "$@"; }
asked() { grep -cx "$1" dns.log || true; }

# Both families are asked for, and the server is met by IPv6. An answer counts for as long as it says.
[ "$(get http://both.test:8080/who | cut -d' ' -f1)" = fd00:3::1 ] || fail "not by IPv6"
[ "$(asked 'both.test AAAA') $(asked 'both.test A')" = "1 1" ] || fail "$(cat dns.log)"
get http://both.test:8080/who > /dev/null
# The question about the family that lost may have been given up.
[ "$(asked 'both.test AAAA')" = 1 ] || fail "asked again: $(cat dns.log)"
get http://short.test:8080/who > /dev/null
sleep 2.2
get http://short.test:8080/who > /dev/null
[ "$(asked 'short.test A')" = 2 ] || fail "not asked again: $(cat dns.log)"

# One silent address costs far less than the 20 seconds of limits.connect.
SECONDS=0
[ "$(get http://silent.test:8080/who | cut -d' ' -f1)" = 10.3.0.1 ] || fail "not by IPv4"
[ $SECONDS -lt 7 ] || fail "$SECONDS s for a name with a silent address"
# And what fails is told as it is.
code() { get "$@" -o /dev/null -w '%{http_connect}' 2> curl.log || true; }
[ "$(code http://nobody.test:8080/)" = 502 ] || fail "$(cat curl.log)"
[ "$(code http://nobody.test:8080/)" = 502 ] || fail "$(cat curl.log)"
[ "$(asked 'nobody.test A')" = 1 ] || fail "that there is no such name was not kept: $(cat dns.log)"
await 20 grep -q 'nobody.test does not exist' exit.log
[ "$(code http://both.test:9/)" = 502 ] || fail "$(cat curl.log)"
[ "$(code http://dead.test:8080/)" = 504 ] || fail "$(cat curl.log)"

# What the hosts file says counts before, also when it changes under way. A reload forgets what was asked.
echo "10.3.0.2 named.test both.test" >> hosts
by_hosts() { [ "$(get http://both.test:8080/who | cut -d' ' -f1)" = 10.3.0.1 ]; }
await 20 by_hosts
get http://named.test:8080/who > /dev/null
[ "$(asked 'named.test A')" = 0 ] || fail "$(cat dns.log)"
kill -HUP $pid
again() { get http://silent.test:8080/who > /dev/null && [ "$(asked 'silent.test A')" -ge 2 ]; }
await 20 again
stop $pid
