# What needs CAP_NET_ADMIN for each connection still works when the tunnel has started, also when it connects again.
for node in city island; do
  printf '[tcp]\nsend_buffer = "16MiB"\nreceive_buffer = "16MiB"\n' >> $node/$node.toml
done
start city; start island; carries city; carries island
kill $pid_city; await 10 sh -c "! ip -n city link show ekiden0"
start city
await 60 sh -c '[ "$(grep -c "connection 0 carries" island.log)" -ge 2 ]'
echo_at city 10.77.0.1
await 20 ask island 10.77.0.1
# Several connections, and both ends with an address: each flow has one, and none is fought over.
kill $pid_city $pid_island; await 10 sh -c "! ip -n city link show ekiden0"; await 10 sh -c "! ip -n island link show ekiden0"
sed -i 's/^allowed/connections = 3\nallowed/' city/city.toml island/island.toml
sed -i 's/^fingerprint/address = "198.51.100.2:7100"\nfingerprint/' city/city.toml
sed -i 's/^\[peer/[listen]\naddress = "0.0.0.0:7100"\n[peer/' island/island.toml
: > city.log; : > island.log
start city; start island
await 60 sh -c '[ "$(grep -c "carries packets" city.log)" -ge 3 ]'
for _ in 1 2 3 4 5; do ask island 10.77.0.1 > /dev/null; done
sleep 5
before=$(grep -c "carries packets" island.log); sleep 5
[ "$(grep -c "carries packets" island.log)" = "$before" ] || fail "connections replace each other"
await 20 ask island 10.77.0.1
