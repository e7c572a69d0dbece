# Runs in the lab at the client of scenarios/classes.toml, in a folder of its own; $EKIDEN is the program. Streams of three classes go from
# a over b to the server, which fills the leg from b to a.
set -euo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND" >&2; tail -n 20 *.log >&2 || true' ERR
server=$(getent hosts server | cut -d ' ' -f 1)
for node in a b; do "$EKIDEN" keygen $node.key > $node.print; done
for node in a b; do
  other=b; [ $node = a ] || other=a
  print=$(grep -oE 'sha256:[0-9a-f]+' $other.print)
  cat > $node.toml <<T
name = "$node"
key_file = "$node.key"
[listen.leg]
kind = "leg"
address = "0.0.0.0:7000"
nodes = { $other = "$print" }
[peer.$other]
address = "$other:7000"
fingerprint = "$print"
[exit]
allow = ["10.77.0.0/16"]
[class.gold]
weight = 3
[class.bulk]
weight = 1
[class.capped]
ceiling = "2Mbit/s"
T
done
# listen CLASS PORT TO
listen() {
  printf '[listen.%s]\nkind = "forward"\naddress = "0.0.0.0:%s"\nto = "%s:%s"\nvia = ["b"]\nopen = true\nclass = "%s"\n' $1 $2 "$server" $3 $1 >> a.toml
}
listen bulk 9001 9000
listen gold 9002 9000
listen interactive 9003 9001
listen capped 9004 9000
for node in a b; do
  (exec ip netns exec $node "$EKIDEN" proxy -c $node.toml > $node.ready 2>> $node.log) &
  echo $! > $node.pid
done
for node in a b; do until grep -q '^ready$' $node.ready; do sleep 0.1; done; done

# The server sends without end on port 9000, and answers each byte with 2000 on port 9001.
cat > server.py <<'P'
import socket, threading
def flood(c):
    while True: c.sendall(bytes(65536))
def answer(c):
    while c.recv(1): c.sendall(bytes(2000))
def each(c, serve):
    try: serve(c)
    except OSError: pass
def listen(port, serve):
    s = socket.create_server(("", port))
    while True: threading.Thread(target=each, args=(s.accept()[0], serve), daemon=True).start()
threading.Thread(target=listen, args=(9000, flood), daemon=True).start()
listen(9001, answer)
P
(exec ip netns exec server python3 server.py) &
until ip netns exec server ss -Hltn sport = 9001 | grep -q .; do sleep 0.1; done
python3 - <<'P'
import os, signal, socket, threading, time
got = {}
def pull(name, port):
    c = socket.create_connection(("a", port))
    while n := len(c.recv(65536)): got[name] = got.get(name, 0) + n
def begin(name, port, number):
    for _ in range(number): threading.Thread(target=pull, args=(name, port), daemon=True).start()
def rates(seconds):
    before = dict(got); time.sleep(seconds)
    return {name: (got[name] - before.get(name, 0)) * 8e-6 / seconds for name in got}
c = socket.create_connection(("a", 9003)); c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def answers(number):
    times = []
    for _ in range(number):
        begun = time.monotonic(); c.sendall(b"q"); left = 2000
        while left: left -= len(c.recv(left))
        times.append(time.monotonic() - begun); time.sleep(0.05)
    return sorted(times)
def part(times, of): return round(times[int(len(times) * of)] * 1e3, 1)
quiet = answers(60)
begin("bulk", 9001, 8)
time.sleep(4)
busy = answers(120)
print("answers in ms, quiet and beside 8 bulk streams: median", part(quiet, 0.5), part(busy, 0.5), "p99", part(quiet, 0.99), part(busy, 0.99))
assert part(busy, 0.5) <= 2 * part(quiet, 0.5)
begin("gold", 9002, 1)
time.sleep(12)
seen = rates(10)
gold = seen["gold"] / (seen["gold"] + seen["bulk"])
print("Mbit/s", seen, "gold has", round(gold, 3))
# Three quarters by its weight; one of nine connections would have a ninth.
assert 0.67 < gold < 0.83 and seen["gold"] + seen["bulk"] > 16, seen
begin("capped", 9004, 2)
time.sleep(4)
seen = rates(5)
print("Mbit/s", seen)
assert 1 < seen["capped"] < 2.2, seen
# A configuration that says the same changes nothing.
os.kill(int(open("b.pid").read()), signal.SIGHUP)
time.sleep(1)
seen = rates(4)
print("Mbit/s", seen)
assert 1 < seen["capped"] < 2.2, seen
P
