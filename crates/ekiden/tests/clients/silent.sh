# Ten thousand connections that say nothing are dropped after the set time; real clients are served meanwhile.
cat > node.toml <<T
name = "r1"
[limits]
handshake = "8s"
[listen.socks]
kind = "socks5"
address = "0.0.0.0:1080"
open = true
T
on r1 "$EKIDEN" proxy -c node.toml > node.log 2>&1 &
await r1 1080
serve
python3 - <<'P'
import resource, selectors, socket, subprocess, time

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count = min(10_000, hard - 100)
silent = []
for _ in range(count):
    silent.append(socket.create_connection(("r1", 1080), timeout=30))
subprocess.run(["curl", "-sSf", "--proxy", "socks5h://r1:1080", "http://server:8080/file", "-o", "during"], check=True)
waiting = selectors.DefaultSelector()
for connection in silent:
    connection.setblocking(False)
    waiting.register(connection, selectors.EVENT_READ)
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
