# An island's router and one at the exit, with a leg between them: the client's address travels with it.
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
leg='name = "exit"
[listen.leg]
kind = "leg"
address = "10.2.0.2:7000"
plain_key_file = "key"
[exit]
allow = ["10.3.0.0/24", "fd00:3::/64"]'

# An exit that is nobody else needs no rules, and connects as itself.
echo "$leg" > exit.toml && node exit && exit=$pid
node island && island=$pid
sees 10.3.0.1 10.3.0.2:8080
sees fd00:3::1 '[fd00:3::2]:8080'
whole 10.3.0.2:8080
clean exit
stop $exit

# One that allows some networks is the client for those only.
printf '%s\n' "$leg" 'client_addresses = ["10.1.0.0/24", "fd00:9::/64"]' > exit.toml
node exit && exit=$pid
sees_client 10.1.0.2 10.3.0.2:8080
sees fd00:3::1 '[fd00:3::2]:8080'
stop $exit
clean exit

printf '%s\n' "$leg" 'client_addresses = ["10.1.0.2", "fd00:1::/64"]' > exit.toml
node exit && exit=$pid
before=$(accepted island)
for _ in 1 2 3; do
  sees_client 10.1.0.2 10.3.0.2:8080
  sees_client fd00:1::2 '[fd00:3::2]:8080'
done
whole 10.3.0.2:8080
whole '[fd00:3::2]:8080'
until_accepted island $((before + 10))
# What cannot be reached is a reset, before the client knows of the connection or after.
if on client curl -sS --max-time 30 http://10.3.0.2:9/ 2> error; then fail "something is at port 9"; fi
grep -Eq 'reset|connect to' error || fail "$(cat error)"
# Without the node at the exit nothing passes that the island's node takes …
kill -KILL $exit; wait $exit || true
if on client curl -sS --max-time 30 http://10.3.0.2:8080/who 2> error; then fail "it passed"; fi
grep -Eq 'reset|connect to' error || fail "$(cat error)"
# … unless it may go without.
sed -i 's/^kind = "transparent"/&\nbypass = true/' island.toml
kill -HUP $island
await 20 grep -q 'configuration was read again' island.log
sees 10.2.0.1 10.3.0.2:8080
sees fd00:2::1 '[fd00:3::2]:8080'
whole 10.3.0.2:8080
node exit && exit=$pid
sees_client 10.1.0.2 10.3.0.2:8080
sees_client fd00:1::2 '[fd00:3::2]:8080'
whole 10.3.0.2:8080
stop $island
stop $exit
clean island
clean exit
