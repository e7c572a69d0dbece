# curl through SOCKS5 with the name resolved at the exit, through HTTP in absolute form, and through CONNECT.
serve
curl -sSf --proxy socks5h://p1:1080 http://server:8080/file -o socks
curl -sSf --proxy http://p1:3128 http://server:8080/file -o http
curl -sSf --proxy http://p1:3128 --proxytunnel http://server:8080/file -o tunnel
for got in socks http tunnel; do cmp served/file $got; done
# What cannot be reached is said so, in the protocol's own words.
code=$(curl -s --proxy http://p1:3128 -o /dev/null -w '%{http_code}' http://server:9/) && [ "$code" = 502 ]
code=$(curl -s --proxy http://p1:3128 -o /dev/null -w '%{http_code}' http://no-such-host.invalid/) && [ "$code" = 502 ]
if curl -s --proxy socks5h://p1:1080 http://server:9/ 2>/dev/null; then exit 1; else [ $? = 97 ]; fi
# One port for all of them.
cat > mixed.toml <<T
[listen.all]
kind = "mixed"
address = "127.0.0.1:1081"
[exit]
allow = ["10.77.0.0/16"]
T
"$EKIDEN" proxy -c mixed.toml > mixed.log 2>&1 &
await 20 listens client 1081
for scheme in http socks4 socks4a socks5 socks5h; do
  curl -sSf --proxy $scheme://127.0.0.1:1081 http://server:8080/file -o $scheme-got
  cmp served/file $scheme-got
done
if curl -s --proxy socks4a://127.0.0.1:1081 http://server:9/ 2>/dev/null; then exit 1; else [ $? = 97 ]; fi
