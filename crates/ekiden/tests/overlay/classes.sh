# Runs in the lab at the client of scenarios/classes.toml, in a folder of its own, behind bench/lib/two-nodes.sh; $TRAFFIC is traffic.py there.
# Streams of several classes go from a over b to the server, which fills the leg from b to a.
forward bulk 9001 9000 bulk
forward gold 9002 9000 gold
forward interactive 9003 9001 interactive
forward capped 9004 9000 capped
start_nodes
serve "$TRAFFIC"
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
def median_of_answers(number):
    times = []
    with socket.create_connection(("a", 9003)) as c:
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(number):
            begun = time.monotonic(); c.sendall(b"q"); left = 2000
            while left: left -= len(c.recv(left))
            times.append(time.monotonic() - begun); time.sleep(0.05)
    return sorted(times)[number // 2]
quiet = median_of_answers(60)
begin("bulk", 9001, 8)
# Longer than a class counts that has no stream any more: the leg is not shared when the next one begins.
time.sleep(12)
begin("gold", 9002, 1)
time.sleep(12)
seen = rates(10)
gold = seen["gold"] / (seen["gold"] + seen["bulk"])
print("Mbit/s", seen, "gold has", round(gold, 3))
# Three quarters by its weight; one of nine connections would have a ninth.
assert 0.67 < gold < 0.83 and seen["gold"] + seen["bulk"] > 16, seen
busy = median_of_answers(100)
print("median of answers in ms: alone", round(quiet * 1e3, 1), "beside nine streams", round(busy * 1e3, 1))
# Without classes 2.2 times.
assert busy <= 1.75 * quiet
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
