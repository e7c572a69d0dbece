# Common to all tests of gateways. Runs in namespaces of its own, in an empty folder; $EKIDEN is the program.
#
#   sender 10.1.0.2 ─ lan0 router wan0 ─ line0 far line1 ─ receiver 192.0.2.2
#
# $GATEWAY is the configuration of the guide.
# Not `ip netns exec`, which has a file system for pins of its own each time.
on() { nsenter --net=/run/netns/$1 -- "${@:2}"; }
network sender router far receiver
mount -t bpf none /sys/fs/bpf
link sender eth0 10.1.0.2/24 router lan0 10.1.0.1/24
link router wan0 198.51.100.1/24 far line0 198.51.100.2/24
link far line1 192.0.2.1/24 receiver eth0 192.0.2.2/24
ip -n sender route add default via 10.1.0.1
ip -n router route add default via 198.51.100.2
ip -n far route add 10.1.0.0/16 via 198.51.100.1
ip -n receiver route add default via 192.0.2.1

echo "$GATEWAY" > gateway.toml
# start: the gateway; $gateway is its process.
start() {
  rm -f ready
  (exec nsenter --net=/run/netns/router -- "$EKIDEN" gateway -c gateway.toml > ready 2>> gateway.log) & gateway=$!
  await 20 grep -q '^ready$' ready
}
# of EXPRESSION: a value in its status `s`.
of() { on router "$EKIDEN" gateway status wan0 --json | python3 -c "import json, sys; s = json.load(sys.stdin); print(($1))"; }
is() { [ "$(of "$1")" = "$2" ]; }
# checksums NODE DEVICE 0|1: whether the device finishes the checksums of what it sends, and cuts super-packets (ETHTOOL_STXCSUM).
checksums() {
  on $1 python3 -c "
import array, fcntl, socket, struct, sys
value = array.array('B', struct.pack('II', 0x17, $3))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack('16sP16x', b'$2', value.buffer_info()[0]))"
}
# fetch BYTES STREAMS: so many random bytes on each of so many connections from sender to receiver; fails unless all arrive as sent.
cat > fetch.py <<'P'
import hashlib, os, socket, sys, threading
kind, count, streams = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if kind == "receive":
    listener = socket.create_server(("192.0.2.2", 5001), backlog=64)
    print("listening", flush=True)
    wrong = []
    def take(connection):
        told, digest, left = connection.recv(32, socket.MSG_WAITALL), hashlib.sha256(), count
        while left:
            data = connection.recv(1 << 16)
            if not data: break
            digest.update(data); left -= len(data)
        if left or digest.digest() != told: wrong.append(left)
        connection.sendall(b"k")
    takers = [threading.Thread(target=take, args=(listener.accept()[0],)) for _ in range(streams)]
    [taker.start() for taker in takers]; [taker.join() for taker in takers]
    sys.exit(1 if wrong else 0)
def give():
    data = os.urandom(count)
    connection = socket.create_connection(("192.0.2.2", 5001), timeout=60)
    connection.sendall(hashlib.sha256(data).digest() + data)
    assert connection.recv(1) == b"k"
givers = [threading.Thread(target=give) for _ in range(streams)]
[giver.start() for giver in givers]; [giver.join() for giver in givers]
P
fetch() {
  rm -f listening
  on receiver python3 fetch.py receive $1 $2 > listening & local receiving=$!
  await 10 grep -q listening listening
  on sender python3 fetch.py send $1 $2
  wait $receiving || fail "what arrived is not what was sent"
}
