# HTTPS proxies, and SOCKS5 inside TLS, with clients' certificates: $GATE, $CERTIFICATES, $DOCS and $OWN are those of docs/guide/http-ftp.md.
serve
echo '127.0.0.1 gate.example' >> /etc/hosts
umask 077
make() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2>> openssl.log; }
# A certificate for the proxy, from an authority that curl is told of.
gate() {
  make -subj /CN=gate.example -addext subjectAltName=DNS:gate.example -keyout gate.key -out gate.csr
  openssl x509 -req -in gate.csr -copy_extensions copy -CA ca.pem -CAkey ca.key -days 2 -out gate.pem 2>> openssl.log
}
make -x509 -days 2 -subj /CN=proxies -keyout ca.key -out ca.pem
eval "$CERTIFICATES" 2>> openssl.log
export CURL_HOME=$work
echo "proxy-cacert = $work/ca.pem" > .curlrc
{
  echo "${GATE//0.0.0.0/127.0.0.1}"
  echo '[listen.all]'
  echo 'kind = "mixed"'
  echo 'address = "127.0.0.1:1443"'
  echo 'tls = { certificate_file = "gate.pem", key_file = "gate.key", client_ca_file = "clients.pem" }'
  echo '[exit]'
  echo 'allow = ["10.77.0.0/16"]'
} > gate.toml
"$EKIDEN" proxy -c gate.toml --check
"$EKIDEN" proxy -c gate.toml > gate.out 2> gate.log & node=$!
await 20 grep -q ready gate.out

# As the documentation has it, but for the page.
eval "${DOCS//https:\/\/example.jp\//http://server:8080/file}"
cmp served/file page
gate
kill -HUP $node
await 20 grep -q "was read again" gate.log
alice=(--proxy-cert alice.pem --proxy-key alice.key)
for port in 3443 1443; do
  curl -sSf --proxy https://gate.example:$port "${alice[@]}" --proxytunnel http://server:8080/file -o tunnel
  cmp served/file tunnel
  # Two on one connection.
  curl -sSfv --proxy https://gate.example:$port "${alice[@]}" http://server:8080/file -o one http://server:8080/file -o two 2> told
  cmp served/file one; cmp served/file two
  [ "$(grep -c 'SSL connection using' told)" = 1 ]
  for version in --tlsv1.2 --tlsv1.3; do
    curl -sSf "$version" --tls-max "${version#--tlsv}" --proxy https://gate.example:$port "${alice[@]}" http://server:8080/file -o got
    cmp served/file got
  done
  # Without a certificate, and without TLS.
  if curl -sS --proxy https://gate.example:$port http://server:8080/file -o none 2> why; then exit 1; fi
  grep -qi 'certificate required\|alert' why
  curl -sS --proxy http://gate.example:$port http://server:8080/file | grep -q "begins with https://"
done
grep -q 'it has shown no certificate' gate.log
grep -q 'speaks HTTP on \[listen.web\], which speaks TLS' gate.log

# openssl says close_notify when its input ends, and reads on.
printf 'GET http://server:8080/file HTTP/1.1\r\nHost: server:8080\r\nConnection: close\r\n\r\n' |
  openssl s_client -quiet -connect gate.example:3443 -CAfile ca.pem -verify_return_error -cert alice.pem -key alice.key > whole 2>> openssl.log
tail -c "$(stat -c %s served/file)" whole | cmp served/file -

# SOCKS5 inside TLS; unwrap() is close_notify in both directions.
python3 - <<'P'
import socket, ssl
context = ssl.create_default_context(cafile="ca.pem")
context.load_cert_chain("alice.pem", "alice.key")
tls = context.wrap_socket(socket.create_connection(("gate.example", 1443)), server_hostname="gate.example",
                          suppress_ragged_eofs=False)
def read(n):
    got = b""
    while len(got) < n:
        piece = tls.recv(n - len(got))
        assert piece, got
        got += piece
    return got
tls.sendall(b"\x05\x01\x00")
assert read(2) == b"\x05\x00"
tls.sendall(b"\x05\x01\x00\x03\x06server" + (8080).to_bytes(2, "big"))
assert read(4)[1] == 0 and read(6)
tls.sendall(b"GET /file HTTP/1.0\r\n\r\n")
whole = b""
while piece := tls.recv(65536):
    whole += piece
assert whole.endswith(open("served/file", "rb").read()), len(whole)
tls.unwrap()
P

# A renewed certificate is shown from SIGHUP on; a wrong one changes nothing.
serial() { openssl s_client -connect gate.example:3443 -cert alice.pem -key alice.key < /dev/null 2>/dev/null | openssl x509 -noout -serial; }
first=$(serial)
gate
kill -HUP $node
await 20 grep -q 'was read again' gate.log
await 20 bash -c "[ \"\$(openssl s_client -connect gate.example:3443 -cert alice.pem -key alice.key < /dev/null 2>/dev/null | openssl x509 -noout -serial)\" != '$first' ]"
second=$(serial)
cp alice.pem gate.pem
kill -HUP $node
await 20 grep -q 'stays as it was' gate.log
grep -q 'certificate file .*is not the certificate of the key in' gate.log
[ "$(serial)" = "$second" ]
kill $node

# A node's own certificate, as the documentation has it. A node of the same name with another key is refused.
echo '127.0.0.1 gate' >> /etc/hosts
rm .curlrc
for port in 3443 3444; do
  "$EKIDEN" keygen $port.key > /dev/null
  {
    echo 'name = "gate"'
    echo "key_file = \"$port.key\""
    echo '[listen.web]'
    echo 'kind = "http"'
    echo "address = \"127.0.0.1:$port\""
    echo 'tls = {}'
    echo '[exit]'
    echo 'allow = ["10.77.0.0/16"]'
  } > $port.toml
  "$EKIDEN" proxy -c $port.toml > $port.out 2> $port.log &
  await 20 grep -q ready $port.out
done
rm page
eval "${OWN//https:\/\/example.jp\//http://server:8080/file}" 2>> openssl.log
cmp served/file page
if curl -sS --proxy https://gate:3444 --proxy-cacert own.pem http://server:8080/file -o none 2> why; then exit 1; fi
grep -qi certificate why
kill $(jobs -p)
