# client – NODE r1 – r2 – NODE r3 – server. Connections that are kept warm die with their line and are made again when it is back, without
# any client.
for node in r1 r3; do
  "$EKIDEN" keygen $node.key > $node.print
  printf 'name = "%s"\nkey_file = "%s.key"\n' $node $node > $node.toml
done
cat >> r1.toml <<T
[listen.socks]
kind = "socks5"
address = "0.0.0.0:1080"
open = true
[peer.r3]
address = "r3:7000"
fingerprint = "$(cat r3.print)"
warm = 2
[[route]]
to = ["*"]
via = ["r3"]
T
cat >> r3.toml <<T
[listen.leg]
kind = "leg"
address = "0.0.0.0:7000"
nodes = { r1 = "$(cat r1.print)" }
[exit]
allow = ["10.77.0.0/16"]
T
on r1 "$EKIDEN" proxy -c r1.toml > r1.log 2>&1 &
# Before the other node is there.
await 20 listens r1 1080
sleep 1
on r3 "$EKIDEN" proxy -c r3.toml > r3.log 2>&1 & await 20 listens r3 7000
warm() { on r1 ss -Htn state established 'dport = :7000' | awk '{print $3}' | sort; }
# until_warm N [NOT]: N connections, none of which is one of NOT; within half a minute.
until_warm() {
  for _ in $(seq 300); do
    now=$(warm)
    [ "$(grep -c . <<< "$now")" = "$1" ] && ! grep -qxF "${2:-none}" <<< "$now" && return
    sleep 0.1
  done
  echo "no $1 connections that are not: ${2:-}; there are: $(warm)" >&2
  cat r1.log >&2
  exit 1
}
until_warm 2
first=$(warm)
serve
curl -sSf --proxy socks5h://r1:1080 http://server:8080/file -o got && cmp served/file got
# They stay when they are silent.
sleep 8
grep -qxF "$(head -n 1 <<< "$first")" <<< "$(warm)"
old=$(warm)
on r2 sysctl -qw net.ipv4.ip_forward=0
until_warm 0
on r2 sysctl -qw net.ipv4.ip_forward=1
until_warm 2 "$old"
curl -sSf --proxy socks5h://r1:1080 http://server:8080/file -o got && cmp served/file got
# Said once for each time that it did not go.
[ "$(grep -c 'can be made ahead' r1.log)" -le 2 ] || { cat r1.log; exit 1; }
