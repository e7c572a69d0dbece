# Through an HTTP proxy on the router. The island's own way to the city is closed.
cat > proxy.py <<'P'
# A proxy that takes CONNECT alone: proxy.py HOW, where HOW is what it answers, or `yes`, or `login` for user u, password secret.
import base64, socket, sys, threading
how = sys.argv[1]

def pump(a, b):
    try:
        while data := a.recv(1 << 16):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        a.close(), b.close()

def serve(client):
    head = b""
    while b"\r\n\r\n" not in head:
        data = client.recv(1000)
        if not data:
            return client.close()
        head += data
    known = b"Proxy-Authorization: Basic " + base64.b64encode(b"u:secret") in head
    if how == "login" and not known:
        return client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"), client.close()
    if how == "endless":
        try:
            while True:
                client.sendall(b"HTTP/1.1 200 OK\r\n" if head else b"X-Y: " + b"z" * 1000 + b"\r\n")
                head = b""
        except OSError:
            return
    if how == "silent":
        return held.append(client)
    if how not in ("yes", "login"):
        return client.sendall(how.encode() + b"\r\n\r\n"), client.close()
    host, port = head.split()[1].decode().rsplit(":", 1)
    server = socket.create_connection((host, int(port)))
    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
    pump(client, server)

held = []
listener = socket.create_server(("198.51.100.1", 3128))
print("listens", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
P
proxy() {
  [ -z "${pid_proxy:-}" ] || { kill $pid_proxy || true; wait $pid_proxy || true; } 2> /dev/null
  ip netns exec router python3 proxy.py "$1" > proxy.out 2> proxy.err & pid_proxy=$!
  await 10 grep -q listens proxy.out
}
on router sysctl -qw net.ipv4.ip_forward=0
sed -i 's/^address = "192.0.2.1:7100"/&\nhttp_proxy = "198.51.100.1:3128"/' island/island.toml
start city; proxy yes; start island; carries island
echo_at city 10.77.0.1; await 20 ask island 10.77.0.1
on island sh -c 'cd island && "$EKIDEN" doctor -c island.toml' > said.log || [ $? = 1 ]
grep -q "handshake with city: .*, through the HTTP proxy 198.51.100.1:3128" said.log || fail "$(cat said.log)"
# A proxy that goes and comes again.
kill $pid_proxy; await 60 grep -q "the HTTP proxy 198.51.100.1:3128: .*Connection refused" island.log
# Each refusal is a line of its own.
refused() { proxy "$1"; await 60 grep -q "cannot connect to city: the HTTP proxy 198.51.100.1:3128: $2" island.log; }
again() { kill $pid_island; await 10 sh -c "! ip -n island link show ekiden0"; : > island.log; start island; }
again; refused login "it wants a user and a password (407 Proxy Authentication Required): http_proxy_user and"
again; refused "HTTP/1.1 403 Forbidden" "it does not connect there (403 Forbidden)"
again; refused "HTTP/1.1 502 Bad Gateway" "it cannot connect there (502 Bad Gateway)"
again; refused "SSH-2.0-server" "it does not speak HTTP/1"
again; refused endless "its answer is longer than"
again; proxy silent; await 60 grep -q "cannot connect to city: timed out" island.log
(umask 077; echo wrong > island/password)
sed -i 's/^http_proxy.*/&\nhttp_proxy_user = "u"\nhttp_proxy_password_file = "password"/' island/island.toml
again; refused login "it does not take this user and password (407 Proxy Authentication Required): http_proxy_user and"
again; refused "HTTP/1.1 401 Unauthorized" "it does not take this user and password (401 Unauthorized)"
echo secret > island/password
proxy login; again; carries island; await 20 ask island 10.77.0.1
