# A narrower link behind the next router: "packet too big" goes to the client's address, and must reach the node's sockets.
cat > island.toml <<T
name = "island"
$listeners
[exit]
client_addresses = ["10.0.0.0/8", "fd00:1::/64"]
T
ip -n exit route add 10.3.0.2/32 dev wan0 mtu 1300
ip -n exit -6 route add fd00:3::2/128 dev wan0 mtu 1300
# No other way to find it out.
on island sysctl -qw net.ipv4.tcp_mtu_probing=0
node island
whole 10.3.0.2:8080
whole '[fd00:3::2]:8080'
ip -n island route get 10.3.0.2 | grep 'mtu 1300' > /dev/null || fail "the router did not hear of the path's MTU"
ip -n island -6 route get fd00:3::2 from fd00:1::2 iif lo | grep 'mtu 1300' > /dev/null || fail "nor in IPv6"
until_accepted island 4
stop $pid
clean island
