# The two routers of docs/guide/transparent.md, as they are written there: $ISLAND and $CITY are its blocks. Only the fingerprints are
# those of the keys that are made here.
of_exit=$("$EKIDEN" keygen exit.key) of_island=$("$EKIDEN" keygen island.key)
# NODE FINGERPRINT: its file, where the other has this one.
known() { sed -E "s/sha256:[0-9a-f]{64}/$2/; s/node\\.key/$1.key/"; }
ip -n client address add 192.168.7.2/24 dev eth0; ip -n client address add 2001:db8:7::2/64 dev eth0 nodad
ip -n island address add 192.168.7.1/24 dev lan0; ip -n island address add 2001:db8:7::1/64 dev lan0 nodad
ip -n exit route add 192.168.7.0/24 via 10.2.0.1; ip -n exit -6 route add 2001:db8:7::/64 via fd00:2::1
for address in 198.51.100.2/32 2001:db8:9::2/128; do ip -n server address add $address dev lo; done
ip -n exit route add 198.51.100.2 via 10.3.0.2; ip -n exit -6 route add 2001:db8:9::2 via fd00:3::2
ip -n client route replace default via 192.168.7.1 src 192.168.7.2
ip -n client -6 route replace default via 2001:db8:7::1 src 2001:db8:7::2
known exit $of_island <<< "$CITY" > exit.toml && node exit && city=$pid
known island $of_exit <<< "$ISLAND" > island.toml && node island && island=$pid
sees_client 192.168.7.2 198.51.100.2:8080
sees_client 2001:db8:7::2 '[2001:db8:9::2]:8080'
until_accepted island 2
whole 198.51.100.2:8080
whole '[2001:db8:9::2]:8080'
# Excepted.
sees 192.168.7.2 10.3.0.2:8080
until_accepted island 6
stop $island; stop $city
clean island; clean exit
