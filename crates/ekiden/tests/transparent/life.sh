# Flows that are there before ekiden survive its start, its stop and its death; so do new connections without it.
cat > echo.py <<'P'
# echo.py HOST LOCAL_PORT STOP: sends lines on one connection until the file STOP is there, then says how many came back.
import os, socket, sys, time
host, port, stop = sys.argv[1:]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
connection = socket.socket(family)
connection.settimeout(30)
connection.bind(("", int(port)))
connection.connect((host, 9000))
lines = connection.makefile("rwb")
count = 0
while not os.path.exists(stop):
    lines.write(b"%d\n" % count)
    lines.flush()
    line = lines.readline()
    if line != b"%d\n" % count:
        sys.exit(f"after {count}: {line!r}")
    count += 1
    open(f"{port}.alive", "w").write(str(count))
    time.sleep(0.02)
P
# talk HOST: a flow of its own, in the background; $port is its local port.
talk() {
  fresh_port; port=$next_port
  on client python3 echo.py $1 $port stop-$port > $port.log 2>&1 &
  eval "talker_$port=$!"
  await 20 test -s $port.alive
}
# goes_on PORT: it still gets answers.
goes_on() {
  local then; then=$(cat $1.alive)
  await 20 eval "kill -0 \$talker_$1 && [ \"\$(cat $1.alive)\" -gt $((${then:-0} + 3)) ] 2>/dev/null"
}
ends_well() { touch stop-$1; eval "wait \$talker_$1" || fail "$(cat $1.log)"; }

cat > island.toml <<T
name = "island"
limits = { drain = "30s" }
$listeners
[exit]
client_addresses = ["10.0.0.0/8"]
T
talk 10.3.0.2; before4=$port
talk fd00:3::2; before6=$port
node island
sees_client 10.1.0.2 10.3.0.2:8080
until_accepted island 1
goes_on $before4; goes_on $before6

# SIGTERM: what is relayed goes on until it ends, what is new passes, and then nothing is left.
talk 10.3.0.2; relayed=$port
until_accepted island 2
kill -TERM $pid
await 20 grep -q 'stopping: [12] stream' island.log
goes_on $relayed
sees 10.1.0.2 10.3.0.2:8080
sees fd00:1::2 '[fd00:3::2]:8080'
[ "$(accepted island)" = 2 ] || fail "a connection was taken after SIGTERM"
ends_well $relayed
wait $pid || fail "it ended with $?"
clean island
goes_on $before4; goes_on $before6

# SIGKILL: what was relayed is reset, the rest passes at once, although the rules are still there.
node island
talk 10.3.0.2; relayed=$port
sees fd00:2::1 '[fd00:3::2]:8080'
kill -KILL $pid; wait $pid || true
eval "wait \$talker_$relayed" && fail "the flow survived its node"
grep -q 'ConnectionResetError' $relayed.log || fail "$(cat $relayed.log)"
await 20 eval '[ "$(on server ss -Htn state established "sport = :9000" | wc -l)" = 2 ]'
on island nft list table inet ekiden_island > /dev/null
sees_client 10.1.0.2 10.3.0.2:8080
sees_client fd00:1::2 '[fd00:3::2]:8080'
whole 10.3.0.2:8080
goes_on $before4; goes_on $before6

# Who loads another filter may delete the rules: everything passes then. SIGHUP puts them back.
node island
on island nft flush ruleset
sees fd00:1::2 '[fd00:3::2]:8080'
kill -HUP $pid
await 20 grep -q 'configuration was read again' island.log
sees fd00:2::1 '[fd00:3::2]:8080'
kill -KILL $pid; wait $pid || true

# The next start replaces them.
node island
sees fd00:2::1 '[fd00:3::2]:8080'
[ "$(ip -n island rule | grep -c fwmark)" = 1 ] || fail "$(ip -n island rule)"
stop $pid
clean island

# A new process of the node takes the rules over while streams of the old one run, and keeps them when that has ended.
node island; old=$pid
begun=$(accepted island)
talk 10.3.0.2; relayed=$port
until_accepted island $((begun + 1))
kill -TERM $old
node island
sees_client 10.1.0.2 10.3.0.2:8080
until_accepted island $((begun + 2))
goes_on $relayed
ends_well $relayed
wait $old || fail "it ended with $?"
sees_client 10.1.0.2 10.3.0.2:8080
until_accepted island $((begun + 3))
stop $pid
clean island
ends_well $before4; ends_well $before6
