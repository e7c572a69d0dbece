# curl ─ HAProxy ─ ekiden (alone, or with a second node) ─ HAProxy or nginx: who is the client?
# Each combination of versions has a forward listener on ekiden and a front on HAProxy.
ip link set lo up
"$EKIDEN" keygen entry.key > entry.id
"$EKIDEN" keygen exit.key > exit.id
id() { grep -o 'sha256:[0-9a-f]*' $1.id; }

cat > exit.toml <<T
name = "exit"
key_file = "exit.key"
[listen.leg]
kind = "leg"
address = "127.0.0.1:7000"
nodes = { entry = "$(id entry)" }
[exit]
allow = ["127.0.0.1", "::1"]
T
cat > entry.toml <<T
name = "entry"
key_file = "entry.key"
[peer.exit]
address = "127.0.0.1:7000"
fingerprint = "$(id exit)"
T
# What says whom it takes for the client, and under which address the client came.
cat > haproxy.cfg <<T
defaults
    timeout connect 5s
    timeout client 10s
    timeout server 10s
frontend tells
    mode http
    bind 127.0.0.1:7001 accept-proxy
    http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]\n"
T
cat > nginx.conf <<T
user root;
daemon off;
pid $PWD/nginx.pid;
error_log stderr warn;
events { worker_connections 100; }
http {
  access_log off;
  client_body_temp_path $PWD; proxy_temp_path $PWD; fastcgi_temp_path $PWD; uwsgi_temp_path $PWD; scgi_temp_path $PWD;
  server {
    listen [::1]:7002 proxy_protocol;
    return 200 "\$proxy_protocol_addr \$proxy_protocol_port \$proxy_protocol_server_addr \$proxy_protocol_server_port\n";
  }
}
T
fronts=() port=8000
for out in v1 v2; do
  for to in 127.0.0.1:7001 '[::1]:7002'; do
    for via in '' 'via = ["exit"]'; do
      port=$((port + 1))
      cat >> entry.toml <<T
[listen.f$port]
kind = "forward"
address = "[::1]:$((port + 1000))"
to = "$to"
$via
proxy_protocol = "$out"
proxy_protocol_from = ["::1"]
T
      for in in '' -v2; do
        front=$((port + ${#in} * 100))
        cat >> haproxy.cfg <<T
listen l$front
    mode tcp
    bind 127.0.0.1:$front
    bind [::1]:$front
    server ekiden [::1]:$((port + 1000)) send-proxy$in
T
        fronts+=($front)
      done
    done
  done
done

"$EKIDEN" proxy -c exit.toml > exit.log 2>&1 &
"$EKIDEN" proxy -c entry.toml > entry.log 2>&1 &
export LD_LIBRARY_PATH=$PEERS/usr/lib/$TRIPLET
"$PEERS/usr/sbin/haproxy" -db -f haproxy.cfg > haproxy.log 2>&1 &
"$PEERS/usr/sbin/nginx" -p "$PEERS" -e stderr -c "$PWD/nginx.conf" > nginx.log 2>&1 &
unset LD_LIBRARY_PATH
for _ in $(seq 100); do
  up=0
  for listening in 7000 7001 7002 9001 8001; do
    [ -z "$(ss -Htnl "sport = :$listening")" ] || up=$((up + 1))
  done
  [ $up = 5 ] && break
  sleep 0.1
done
[ $up = 5 ] || fail "not all of them have started"

# asked FROM URL OPTION...: the client's address and port are those that arrive, and where it connected to.
asked() {
  local from=$1 url=$2; shift 2
  said=$(curl -sS --max-time 10 --interface "$from" "$@" -w '%{local_ip} %{local_port} %{remote_ip} %{remote_port}\n' "$url") \
    || fail "$url from $from: $said"
  [ "$(sed -n 1p <<< "$said")" = "$(sed -n 2p <<< "$said")" ] || fail "$url from $from: arrived and was: $said"
  count=$((count + 1))
}
count=0
for front in "${fronts[@]}"; do
  asked 127.0.0.5 http://127.0.0.1:$front/
  asked ::1 "http://[::1]:$front/"
done
# curl itself begins with a header (version 1).
for port in 9001 9003 9005 9007; do
  asked ::1 "http://[::1]:$port/" --haproxy-protocol
done
[ $count = 36 ] || fail "$count instead of 36"
# Without one there is no answer.
! curl -sS --max-time 10 'http://[::1]:9001/' 2> refused.log || fail "served without a header"
# The log has a thread of its own.
for _ in {1..100}; do
  grep -q 'must begin with a PROXY protocol header' entry.log && break
  sleep 0.1
done
await 10 grep -q 'must begin with a PROXY protocol header' entry.log
