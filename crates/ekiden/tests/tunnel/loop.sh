# The address from which the island connects is among those that city routes into the tunnel: it never comes up, and city says why.
sed -i 's|^allowed = \["10.77.0.2/32"|allowed = ["198.51.100.0/24", "10.77.0.2/32"|' city/city.toml
start city; start island
await 20 grep -q "198.51.100.2 connects to this listener, and what it is answered goes into the tunnel itself, .*allowed addresses of island" city.log
grep -q "carries packets" city.log && fail "it came up after all"
# What the line says to do helps.
ip -n city route add 198.51.100.2 via 192.0.2.254
carries city
echo_at city 10.77.0.1
await 20 ask island 10.77.0.1
# What comes through the tunnel may connect to the listener: that is no loop.
: > city.log
on island python3 -c "
import socket
socket.create_connection(('10.77.0.1', 7100), timeout=10)"
grep -q "goes into the tunnel itself" city.log && fail "a connection through the tunnel is taken for a loop"
true
