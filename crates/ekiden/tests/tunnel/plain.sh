# Without encryption: both ends have the same key, and nothing else of their own.
(cd city && "$EKIDEN" keygen --shared line.key) && cp -p city/line.key island/
for node in city island; do
  sed -i '/^key_file/d; s/^fingerprint.*/plain_key_file = "line.key"/' $node/$node.toml
done
sed -i 's/^\[peer/plain_key_file = "line.key"\n[peer/' city/city.toml
start city; start island; carries city; carries island
echo_at city 10.77.0.1; await 20 ask island 10.77.0.1
# It is plain: a packet's bytes are on the line.
cat > line.py <<'E'
import socket
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
line.bind(("line1", 0))
line.settimeout(20)
print("listens", flush=True)
while bytes.fromhex("45ca1ade45ca1ade") not in line.recv(65536):
    pass
E
on router python3 line.py > line.out & line=$!
await 10 grep -q listens line.out
on island python3 -c "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(bytes.fromhex(\"45ca1ade45ca1ade\"), (\"10.77.0.1\", 9))"
wait $line || fail "the packet is not on the line"
# Another key, a name that no peer has, and TLS instead are refused, and both ends say why.
stop() { kill $pid_island; await 10 sh -c "! ip -n island link show ekiden0"; : > island.log; : > city.log; }
stop; cp -p island/line.key right.key; rm island/line.key; (cd island && "$EKIDEN" keygen --shared line.key)
start island; await 20 grep -q "does not have the same key" island.log
await 20 grep -q "was refused: it closed the connection before it had proven the key" city.log
stop; cp -p right.key island/line.key; sed -i 's/^name = "island"/name = "atoll"/' island/island.toml
start island; await 20 grep -q "it calls itself 'atoll'" city.log
await 20 grep -q "it refuses this node; its log says why" island.log
grep -q "carries packets" island.log && fail "a refused node thinks that it is connected"
stop; sed -i "s/^name = \"atoll\"/name = \"island\"\nkey_file = \"node.key\"/; s/^plain_key_file.*/fingerprint = \"$(key city)\"/" island/island.toml
start island; await 20 grep -q "plain_key_file on this side means not to" city.log
