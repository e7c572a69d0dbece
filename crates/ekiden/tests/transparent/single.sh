# A router with ekiden between client and server: IPv4 and IPv6, as itself and as the client.
config() {
  cat <<T
name = "island"
$listeners
$*
T
}
config > island.toml && node island
# The address of an interface that leads to the server, as any connection from the router has.
sees 10.2.0.1 10.3.0.2:8080
sees fd00:2::1 '[fd00:3::2]:8080'
whole 10.3.0.2:8080
whole '[fd00:3::2]:8080'
stop $pid
clean island

config '[exit]
client_addresses = ["10.1.0.0/16", "fd00:1::/64"]' > island.toml && node island
before=$(accepted island)
for _ in 1 2 3; do
  sees_client 10.1.0.2 10.3.0.2:8080
  sees_client fd00:1::2 '[fd00:3::2]:8080'
done
whole 10.3.0.2:8080
whole '[fd00:3::2]:8080'
until_accepted island $((before + 10))
stop $pid
clean island

# A metadata service would answer the island as itself.
ip -n server address add 169.254.169.254/32 dev lo
for node in client island exit; do ip -n $node route add 169.254.0.0/16 via 10.$([ $node = client ] && echo 1.0.1 || { [ $node = island ] && echo 2.0.2 || echo 3.0.2; }); done
config > island.toml && node island
if who 169.254.169.254:8080; then fail "the island has connected to a link-local address"; fi
await 20 grep -q 'does not connect to a link-local address' island.log
# Those beyond the link's.
ip -n server address add 100.100.100.200/32 dev lo
for node in client island exit; do ip -n $node route add 100.100.100.200/32 via 10.$([ $node = client ] && echo 1.0.1 || { [ $node = island ] && echo 2.0.2 || echo 3.0.2; }); done
if who 100.100.100.200:8080; then fail "the island has connected to a cloud's metadata service"; fi
stop $pid
config '[exit]
allow = ["169.254.169.254"]' > island.toml && node island
sees 10.2.0.1 169.254.169.254:8080
stop $pid
clean island
