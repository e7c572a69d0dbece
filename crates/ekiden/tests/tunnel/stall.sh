# Small packets go both ways all the time; what has come back is written down with its time.
start city; start island; carries island
cat > beat.py <<'P'
import socket, sys, threading, time
s = socket.socket(type=socket.SOCK_DGRAM)
if sys.argv[1:] == ["back"]:
    s.bind(("10.77.0.1", 6001))
    while True:
        data, peer = s.recvfrom(100)
        s.sendto(data, peer)
def send():
    while True:
        try:
            s.sendto(b"beat", ("10.77.0.1", 6001))
        except OSError:
            pass
        time.sleep(0.1)
s.bind(("10.77.0.2", 0))
threading.Thread(target=send, daemon=True).start()
while True:
    s.recvfrom(100)
    print(time.time(), flush=True)
P
ip netns exec city python3 beat.py back & ip netns exec island python3 beat.py > beats &
await 20 [ -s beats ]
# first_after TIME: the seconds from then to the next that came back.
first_after() { python3 -c "
import sys
print(round(next(t for t in map(float, open('beats')) if t > $1) - $1, 1))"; }
# Cuts of 4 s: the new connection is there before the old one goes on, and the other end resets that. The new one stays.
for cut in 1 2 3; do
  ip -n router link set line0 down; sleep 4
  ip -n router link set line0 up; ip -n router route replace 198.51.100.0/24 dev line0
  sleep 4
done
for node in city island; do
  grep -q "connection 0 ended" $node.log && fail "$(cat city.log island.log)"
done
: > city.log; : > island.log
# A cut of 12 s: TCP would wait until its next timeout, up to 25 s after the last one.
ip -n router link set line0 down; sleep 12
back=$(date +%s.%N); ip -n router link set line0 up; ip -n router route replace 198.51.100.0/24 dev line0
await 30 first_after $back
after=$(first_after $back); echo "after the cut: $after s"
python3 -c "assert $after < 5" || fail "the tunnel was back after $after s"
for node in city island; do
  grep -q "connection 0 ended" $node.log && fail "$(cat city.log island.log)"
done
# The island's address changes: the old connection never goes on.
await 10 grep -q "connection 0 stalls, and is dialled anew" island.log
sleep 2; : > island.log
ip -n island address add 198.51.100.7/24 dev eth0; ip -n island address del 198.51.100.2/24 dev eth0
ip -n island address show dev eth0 | grep -q 198.51.100.7 || ip -n island address add 198.51.100.7/24 dev eth0
ip -n island route replace default via 198.51.100.1; moved=$(date +%s.%N)
await 30 grep -q "connection 0 stalls, and is dialled anew" island.log
await 30 grep -q "connection 0 carries packets" island.log
sleep 1
after=$(first_after $(python3 -c "print($moved + 1)")); echo "after the move: $after s"
python3 -c "assert $after < 6" || fail "the tunnel was back after $after s"
on city "$EKIDEN" tunnel status --wide | grep -q "198.51.100.7" || fail "$(on city "$EKIDEN" tunnel status)"
