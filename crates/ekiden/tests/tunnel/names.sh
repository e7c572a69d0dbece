# The peer by name. Its first address does not answer: the second is tried while the first still may.
printf '127.0.0.1 localhost\n203.0.113.9 two.example\n192.0.2.1 two.example\n' > hosts; mount --bind hosts /etc/hosts
swallow() { on router ip neigh replace 192.0.2.77 lladdr 02:00:00:00:00:77 dev line1; on router ip route replace $1 via 192.0.2.77; }
swallow 203.0.113.0/24
sed -i 's/^address = "192.0.2.1:7100"/address = "two.example:7100"/' island/island.toml
start city; start island
await 8 grep -q "connection 0 carries packets" island.log
stop() { kill $pid_island; wait $pid_island || true; await 10 sh -c "! ip -n island link show ekiden0"; : > island.log; }
stop
# A name whose address is in the device's own network, and one that cannot be looked up.
echo '10.77.0.9 inner.example' >> hosts; sed -i 's/two.example/inner.example/' island/island.toml
start island; await 8 grep -q "cannot connect to city: inner.example is 10.77.0.9, which is reached through the tunnel itself" island.log
stop; echo "nameserver 127.0.0.1" > resolv.conf; mount --bind resolv.conf /etc/resolv.conf
sed -i 's/inner.example/missing.example/' island/island.toml
start island; await 30 grep -q "cannot connect to city: cannot look up the name missing.example: " island.log
stop; umount /etc/resolv.conf; sed -i 's/missing.example/two.example/' island/island.toml
# A name server that does not answer keeps nobody from ending the tunnel.
echo "nameserver 203.0.113.53" > resolv.conf; mount --bind resolv.conf /etc/resolv.conf
sed -i 's/two.example/nowhere.example/' island/island.toml
start island; sleep 1
kill $pid_island; await 2 sh -c "! kill -0 $pid_island"
