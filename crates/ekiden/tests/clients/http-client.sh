# Python's http.client through the HTTP listener: kept connections, chunked bodies both ways, HEAD, CONNECT.
cat > echo.py <<'P'
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = f"{self.command} {self.path} via={self.headers.get('Via', '')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def do_POST(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(0, len(body), 70000):
            piece = body[i:i + 70000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

ThreadingHTTPServer(("", 8080), Echo).serve_forever()
P
on server python3 echo.py & await 20 listens server 8080
python3 - <<'P'
import http.client

proxy = http.client.HTTPConnection("p1", 3128, timeout=30)
data = open("served/file", "rb").read()
for i in range(20):
    proxy.request("GET", f"http://server:8080/{i}")
    answer = proxy.getresponse().read().decode()
    assert answer.startswith(f"GET /{i} via=1.1 "), answer
    sock = proxy.sock if i == 0 else sock
    assert proxy.sock is sock, "the connection was not kept"
proxy.request("HEAD", "http://server:8080/head")
assert proxy.getresponse().read() == b""
proxy.request("POST", "http://server:8080/length", body=data)
assert proxy.getresponse().read() == data
proxy.request("POST", "http://server:8080/chunks", body=(data[i:i + 50000] for i in range(0, len(data), 50000)),
              encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
assert proxy.getresponse().read() == data
assert proxy.sock is sock

tunnel = http.client.HTTPConnection("p1", 3128, timeout=30)
tunnel.set_tunnel("server", 8080)
tunnel.request("POST", "/tunnel", body=data)
assert tunnel.getresponse().read() == data
P
