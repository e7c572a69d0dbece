# An end that does not run for a while blames no connection, nor does one whose other end is silent for longer than itself.
printf 'keepalive = "1s"\n' | cat - city/city.toml > t && mv t city/city.toml
start city; start island; carries island
sleep 6
grep -E "ended|stalls" city.log island.log && fail "of silence"
for stop in 1 2 3; do
  kill -STOP $pid_island
  # It is sent when the end goes on, before the end looks at its connections.
  on island python3 -c "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('10.77.0.1', 6001))"
  sleep 3.5; kill -CONT $pid_island; sleep 1
done
grep -E "ended|stalls" city.log island.log && fail "of a pause"
[ "$(grep -c "connection 0 carries packets" island.log)" = 1 ] || fail "it was replaced"
