# Common to all tests of tunnels. Runs in namespaces of its own, in an empty folder; $EKIDEN is the program.
#
#   island 198.51.100.2 ─ line0 router line1 ─ city 192.0.2.1 ─ lan0 server 10.9.0.2
#
# $CITY and $ISLAND are the configurations of the guide.
network island router city server
link island eth0 198.51.100.2/24 router line0 198.51.100.1/24
link router line1 192.0.2.254/24 city eth0 192.0.2.1/24
link city lan0 10.9.0.1/24 server eth0 10.9.0.2/24
ip -n island route add default via 198.51.100.1
ip -n city route add default via 192.0.2.254
ip -n server route add default via 10.9.0.1

mkdir city island
(cd city && "$EKIDEN" keygen node.key > key) && (cd island && "$EKIDEN" keygen node.key > key)
key() { grep -o 'sha256:[0-9a-f]*' $1/key; }
# The guide's files, with the real keys instead of the examples'.
sed "s/sha256:[0-9a-f]*/$(key island)/" <<< "$CITY" > city/city.toml
sed "s/sha256:[0-9a-f]*/$(key city)/" <<< "$ISLAND" > island/island.toml

# start NODE: its tunnel; $pid_NODE is its process. The one before, which was told to end, has its status for a moment longer than its
# device.
start() {
  local before=pid_$1
  [ -z "${!before-}" ] || wait ${!before} || true
  rm -f $1/ready
  (cd $1 && exec ip netns exec $1 "$EKIDEN" tunnel -c $1.toml > ready 2>> ../$1.log) &
  declare -g pid_$1=$!
  await 20 grep -q '^ready$' $1/ready
}
carries() { await 30 grep -q "connection 0 carries packets" $1.log; }

cat > echo.py <<'P'
# Sends back what comes: server ADDRESS, or client ADDRESS COUNT, which prints the median of the round trips in ms.
import socket, statistics, sys, threading, time

def back(connection):
    while data := connection.recv(1 << 16):
        connection.sendall(data)

if sys.argv[1] == "server":
    listener = socket.create_server((sys.argv[2], 6000), family=socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET)
    while True:
        threading.Thread(target=back, args=(listener.accept()[0],), daemon=True).start()
connection = socket.create_connection((sys.argv[2], 6000), timeout=30)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
times = []
for _ in range(int(sys.argv[3])):
    begin = time.monotonic()
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    times.append((time.monotonic() - begin) * 1e3)
    time.sleep(0.02)
print(round(statistics.median(times)))
P
echo_at() { on $1 python3 echo.py server $2 & }
ask() { on $1 python3 echo.py client $2 ${3:-3}; }
