# The deployment of the README and of the quick start, as it is written there: $CITY, $ISLAND, $KEY and $FETCH are its blocks and commands. Only the fingerprints
# are those of the keys that it makes.
city=$(getent hosts r1 | cut -d' ' -f1)
on r1 ip address add 192.0.2.1/32 dev lo
ip route add 192.0.2.1 $(ip route get "$city" | grep -o 'dev [^ ]*')
# A public address: an exit connects to others only if it is told so.
on server ip address add 198.51.100.80/32 dev lo
on r1 ip route add 198.51.100.80 $(on r1 ip route get "$(getent hosts server | cut -d' ' -f1)" | grep -o 'dev [^ ]*')
echo "198.51.100.80 server.example" >> /etc/hosts
ln -s "$EKIDEN" ekiden && PATH=$PWD:$PATH
for host in city island; do mkdir $host && (cd $host && bash -euc "$KEY" > print); done
known() { sed -E "s/(city|island|fingerprint) = \"sha256:[0-9a-f]{64}\"/\\1 = \"$(cat "$1/print")\"/"; }
known island <<< "$CITY" > city/city.toml
known city <<< "$ISLAND" > island/island.toml
(cd city && exec ip netns exec r1 ekiden proxy -c city.toml) & await 20 listens r1 7000
(cd island && exec ekiden proxy -c island.toml) & await 20 listens client 1080
(cd served && exec ip netns exec server python3 -m http.server 80 >/dev/null 2>&1) & await 20 listens server 80
bash -euc "$FETCH" > got
cmp served/file got
# What is private behind the city, or its own, is not for those on the island: SOCKS says so, and curl's code for that is 97.
for own in 192.0.2.1 127.0.0.1 "$(getent hosts server | cut -d' ' -f1)"; do
  code=0; curl -sS --proxy socks5h://127.0.0.1:1080 "http://$own/file" 2> error || code=$?
  [ $code = 97 ] && grep -q '(2)' error || { echo "$own: $code" >&2; cat error >&2; exit 1; }
done
