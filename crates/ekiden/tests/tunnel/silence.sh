# An end that sends a keep-alive each second, and one that sends one each ten: neither gives the other up.
printf 'keepalive = "1s"\n' | cat - city/city.toml > t && mv t city/city.toml
start city; start island; carries island
sleep 6
grep -E "ended|stalls" city.log island.log && fail "of silence"
[ "$(grep -c "connection 0 carries packets" island.log)" = 1 ] || fail "it was replaced"
