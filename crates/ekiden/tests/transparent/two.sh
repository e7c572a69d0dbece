# Two nodes on one host do not disturb each other; two of the same name are not possible.
config() { # NAME PORT
  cat <<T
name = "$1"
[listen.v4]
kind = "transparent"
address = "127.0.0.1:$2"
interfaces = ["lan0"]
except = ["$3"]
[listen.v6]
kind = "transparent"
address = "[::1]:$2"
interfaces = ["lan0"]
[exit]
client_addresses = ["$4"]
T
}
# start NAME FILE: on the island; $pid.
start() {
  rm -f $1.out
  EKIDEN_LOG=trace ip netns exec island "$EKIDEN" proxy -c $2 > $1.out 2>> $1.log &
  pid=$!
  await 20 grep -qs '^ready' $1.out
}
config first 3129 '*:8081' 10.0.0.0/8 > first.toml
config second 3130 '*:8080' fd00::/16 > second.toml
start first first.toml && first=$pid
start second second.toml && second=$pid
# What the first excepts the second takes; each connects in its own way.
sees_client 10.1.0.2 10.3.0.2:8080
sees 10.2.0.1 10.3.0.2:8081
until_accepted first 1
until_accepted second 1
# One that comes back replaces its own only.
kill -KILL $second; wait $second || true
sees 10.1.0.2 10.3.0.2:8081
sees_client 10.1.0.2 10.3.0.2:8080
start second second.toml && second=$pid
sees 10.2.0.1 10.3.0.2:8081
[ "$(ip -n island rule | grep -c fwmark)" = 2 ] || fail "$(ip -n island rule)"

# SIGHUP changes what is taken; streams that run go on.
fresh_port
on client python3 -c '
import os, socket, time
s = socket.create_connection(("10.3.0.2", 9000))
open("connected", "w").write("x")
while not os.path.exists("go"): time.sleep(0.05)
s.sendall(b"line\n")
assert s.recv(100) == b"line\n"
' > talk.log 2>&1 & talk=$!
await 20 test -e connected
await 20 eval '[ "$(accepted first)" -ge 3 ]'
cat > first.toml <<'T'
name = "first"
[listen.socks]
kind = "socks5"
address = "127.0.0.1:1080"
T
kill -HUP $first
await 20 grep -q 'configuration was read again' first.log
sees 10.1.0.2 10.3.0.2:8080
touch go && wait $talk || fail "$(cat talk.log)"
config first 3129 '*:8081' 10.0.0.0/8 > first.toml
kill -HUP $first
await 20 eval '[ $(grep -c "configuration was read again" first.log) = 2 ]'
sees_client 10.1.0.2 10.3.0.2:8080

config first 3131 '*:8081' 10.0.0.0/8 > third.toml
code=0; on island "$EKIDEN" proxy -c third.toml > third.out 2> third.log || code=$?
[ $code = 5 ] && grep -q "another process has the rules of a node named 'first'" third.log || fail "$code: $(cat third.log)"
stop $second
sees_client 10.1.0.2 10.3.0.2:8080
stop $first
clean island

# What is printed is what nft takes.
for file in first.toml second.toml; do
  "$EKIDEN" proxy -c $file --print-rules > rules.nft
  on exit nft -c -f rules.nft
done
on exit nft -f rules.nft
grep -q 'tproxy ip to 127.0.0.1:3130' <<< "$(on exit nft list chain inet ekiden_second listener0)"

# What is missing is said in one line, with exit code 4.
lacks() { # TEXT COMMANDS: what the commands have prepared lacks, and the text is said.
  local code=0
  unshare --net --mount sh -c "ip link set lo up; ip link add lan0 type veth peer name other; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1; $2 \"\$@\"" sh "$EKIDEN" proxy -c first.toml > lacks.out 2> lacks.log || code=$?
  [ $code = 4 ] && [ $(wc -l < lacks.log) = 1 ] && grep -q "$1" lacks.log || fail "$code: $(cat lacks.log)"
}
lacks 'needs CAP_NET_ADMIN' 'exec setpriv --bounding-set=-net_admin,-net_raw'
lacks 'needs CAP_NET_ADMIN' 'exec setpriv --bounding-set=-net_admin'
mkdir empty
lacks 'install nftables' 'mount --bind empty /usr/sbin; exec'
lacks 'tcp_syncookies=1' 'sysctl -qw net.ipv4.tcp_syncookies=2; exec'
lacks 'tcp_fwmark_accept=0' 'sysctl -qw net.ipv4.tcp_fwmark_accept=1; exec'
lacks 'src_valid_mark=0' 'sysctl -qw net.ipv4.conf.lan0.rp_filter=1 net.ipv4.conf.all.src_valid_mark=1; exec'
