# The README's deployment, as it is written there: $CITY, $ISLAND, $KEY and $FETCH are its blocks and commands. Only the fingerprints
# are those of the keys that it makes.
city=$(getent hosts r1 | cut -d' ' -f1)
on r1 ip address add 192.0.2.1/32 dev lo
ip route add 192.0.2.1 $(ip route get "$city" | grep -o 'dev [^ ]*')
echo "$(getent hosts server | cut -d' ' -f1) server.example" >> /etc/hosts
ln -s "$EKIDEN" ekiden && PATH=$PWD:$PATH
for host in city island; do mkdir $host && (cd $host && bash -euc "$KEY" > print); done
known() { sed -E "s/(city|island|fingerprint) = \"sha256:[0-9a-f]{64}\"/\\1 = \"$(cat "$1/print")\"/"; }
known island <<< "$CITY" > city/city.toml
known city <<< "$ISLAND" > island/island.toml
(cd city && exec ip netns exec r1 ekiden proxy -c city.toml) & await r1 7000
(cd island && exec ekiden proxy -c island.toml) & await client 1080
(cd served && exec ip netns exec server python3 -m http.server 80 >/dev/null 2>&1) & await server 80
bash -euc "$FETCH" > got
cmp served/file got
