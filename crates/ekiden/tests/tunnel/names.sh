# The peer by name. Its first address does not answer: the second is tried while the first still may.
printf '127.0.0.1 localhost\n203.0.113.9 two.example\n192.0.2.1 two.example\n' > hosts; mount --bind hosts /etc/hosts
swallow() { on router ip neigh replace 192.0.2.77 lladdr 02:00:00:00:00:77 dev line1; on router ip route replace $1 via 192.0.2.77; }
swallow 203.0.113.0/24
sed -i 's/^address = "192.0.2.1:7100"/address = "two.example:7100"/' island/island.toml
start city; start island
await 8 grep -q "connection 0 carries packets" island.log
stop() { kill $pid_island; wait $pid_island || true; await 10 sh -c "! ip -n island link show ekiden0"; : > island.log; }
stop
# A name server that does not answer keeps nobody from ending the tunnel.
echo "nameserver 203.0.113.53" > resolv.conf; mount --bind resolv.conf /etc/resolv.conf
sed -i 's/two.example/nowhere.example/' island/island.toml
start island; sleep 1
kill $pid_island; await 2 sh -c "! kill -0 $pid_island"
