# The README's deployment, as it is written there: $CITY, $ISLAND, $KEY and $FETCH are its blocks and commands.
city=$(getent hosts r1 | cut -d' ' -f1)
on r1 ip address add 192.0.2.1/32 dev lo
ip route add 192.0.2.1 $(ip route get "$city" | grep -o 'dev [^ ]*')
echo "$(getent hosts server | cut -d' ' -f1) server.example" >> /etc/hosts
ln -s "$EKIDEN" ekiden && PATH=$PWD:$PATH
bash -euc "$KEY"
printf '%s' "$CITY" > city.toml
printf '%s' "$ISLAND" > island.toml
on r1 ekiden proxy -c city.toml & await r1 7000
ekiden proxy -c island.toml & await client 1080
(cd served && exec ip netns exec server python3 -m http.server 80 >/dev/null 2>&1) & await server 80
bash -euc "$FETCH" > got
cmp served/file got
