# Nine thousand connections that say nothing are dropped after the set time; real clients are served meanwhile.
cat > node.toml <<T
name = "r1"
[limits]
handshake = "8s"
client_connections = 20000
client_rate = 20000
[listen.socks]
kind = "socks5"
address = "0.0.0.0:1080"
open = true
[exit]
allow = ["10.77.0.0/16"]
T
on r1 "$EKIDEN" proxy -c node.toml > node.log 2>&1 &
await 20 listens r1 1080
serve
python3 - <<'P'
import resource, selectors, socket, subprocess, time

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count = 9_000
assert hard > 2 * count + 500, f"needs more than {hard} descriptors: ulimit -Hn"
start = time.monotonic()
address = (socket.gethostbyname("r1"), 1080)
silent = []
while len(silent) < count:
    batch = [socket.socket() for _ in range(min(500, count - len(silent)))]
    for connection in batch:
        connection.setblocking(False)
        connection.connect_ex(address)
    connecting = selectors.DefaultSelector()
    for connection in batch:
        connecting.register(connection, selectors.EVENT_WRITE)
    while connecting.get_map():
        for key, _ in connecting.select(timeout=30):
            assert key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            connecting.unregister(key.fileobj)
    silent += batch
subprocess.run(["curl", "-sSf", "--proxy", "socks5h://r1:1080", "http://server:8080/file", "-o", "during"], check=True)
waiting = selectors.DefaultSelector()
for connection in silent:
    waiting.register(connection, selectors.EVENT_READ)
if time.monotonic() < start + 7:
    assert not waiting.select(timeout=0), "dropped before their time"
end = time.monotonic() + 60
left = count
while left and time.monotonic() < end:
    for key, _ in waiting.select(timeout=1):
        try:
            assert key.fileobj.recv(100) == b""
        except ConnectionResetError:
            pass
        waiting.unregister(key.fileobj)
        key.fileobj.close()
        left -= 1
assert left == 0, f"{left} of {count} silent connections still stand"
P
cmp served/file during
[ -z "$(on r1 ss -Htn state established 'sport = :1080')" ]
