# A tunnel that gets no processor for a while loses nothing of what the host sends meanwhile, and says so when it does.
start city; start island; carries island
burst() { ip netns exec island python3 -c "
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 26)
for _ in range($1):
    s.sendto(b'x', ('10.77.0.1', 6001))"; }
# The kernel's own first packets may come before the program reads the device.
first=0
dropped() { (cd island && ip netns exec island "$EKIDEN" tunnel status --json) | python3 -c '
import json, sys
print(json.load(sys.stdin)["device_dropped"] - int(sys.argv[1]))' $first; }
first=$(dropped)
kill -STOP $pid_island; burst 3000; kill -CONT $pid_island
[ "$(dropped)" = 0 ] || fail "$(dropped) of 3,000 were dropped"
kill -STOP $pid_island; burst 20000; kill -CONT $pid_island
[ "$(dropped)" -gt 5000 ] || fail "$(dropped) of 20,000 were dropped"
