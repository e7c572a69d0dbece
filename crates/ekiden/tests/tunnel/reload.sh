# SIGHUP takes what is new of connections under the streams inside, and says what only a start can take.
start city; start island; carries island
on city python3 echo.py server 10.77.0.1 &
await 10 on city sh -c "ss -Hltn | grep -q :6000"
on island python3 echo.py client 10.77.0.1 400 > rtt & client=$!
# hang_up NODE LINE: SIGHUP, which logs this.
hang_up() { : > $1.log; local pid=pid_$1; kill -HUP ${!pid}; await 10 grep -q "$2" $1.log; }
connections() { on island "$EKIDEN" tunnel status ekiden0 --json | grep -c '"is_up": true'; }
answers() { on island timeout 3 python3 echo.py client 10.77.0.1 1 > /dev/null 2>&1; }
# One more connection for each peer.
sed -i 's/^\[peer.*/&\nconnections = 2/' city/city.toml island/island.toml
hang_up city "read again from city.toml"; hang_up island "read again from island.toml"
await 20 sh -c "[ \$(ip netns exec island $EKIDEN tunnel status ekiden0 --json | grep -c '\"is_up\": true') = 2 ]"
wait $client || fail "a stream inside was broken"
# The same file again ends no connection.
hang_up island "nothing in it is new"
grep -q "carries packets" island.log && fail "connections were made anew" || true
# A key that is taken out is no longer heard; put back, it is.
cp city/city.toml kept; (mkdir -p other && cd other && "$EKIDEN" keygen node.key > key)
sed -i "s/sha256:[0-9a-f]*/$(key other)/" city/city.toml
hang_up city "read again"
sleep 1; answers && fail "a removed key still carries packets" || true
cp kept city/city.toml; hang_up city "read again"
await 20 answers
# An address that another program of this user has, which would share it: everything stays.
on city python3 -c 'import socket, time
taken = socket.socket(); taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); taken.bind(("127.0.0.1", 6001)); taken.listen()
time.sleep(100)' & taken=$!
await 10 on city sh -c "ss -Hltn | grep -q :6001"
cp city/city.toml kept; sed -i '/^\[listen\]/,/^\[/s/^address = .*/address = "127.0.0.1:6001"/' city/city.toml
hang_up city "stays as it was: .*127.0.0.1:6001: Address already in use"
kill $taken; cp kept city/city.toml; hang_up city "nothing in it is new"
# What only a start can take: everything stays.
sed -i 's/^mtu = .*/mtu = 1400/' island/island.toml; grep -q "mtu = 1400" island/island.toml || sed -i 's/^name = "ekiden0"/&\nmtu = 1400/' island/island.toml
hang_up island "the configuration stays as it was: .*\[device\]: what is new there only a start can take; restart it"
sed -i '/^mtu = 1400/d' island/island.toml
sed -i 's/^allowed = \[/&"10.99.0.0\/16", /' island/island.toml
hang_up island "stays as it was: .*networks of .allowed. need routes"
answers || fail "a refused file has ended the tunnel"
kill $pid_island; wait $pid_island || fail "it ended with $?"
kill $pid_city; wait $pid_city || fail "it ended with $?"
