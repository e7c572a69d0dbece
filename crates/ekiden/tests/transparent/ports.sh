# A client that uses a port again while the router still has the connection before in TIME_WAIT, on either side.
cat > island.toml <<T
name = "island"
$listeners
[exit]
client_addresses = ["10.0.0.0/8", "fd00:1::/64"]
T
cat > again.py <<'P'
# The same port several times: who ends first is in TIME_WAIT. SYNs that are not answered show in TCP_INFO.
import socket, struct, sys, time
host, who_ends = sys.argv[1:]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
answers = []
for _ in range(3 if who_ends == "client" else 10):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.settimeout(30)
    s.bind(("", 42000))
    s.connect((host, 8080))
    # Offset 100 of struct tcp_info: tcpi_total_retrans.
    retransmitted = struct.unpack_from("I", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200), 100)[0]
    s.sendall(b"GET /who HTTP/1.1\r\nHost: x\r\nConnection: %s\r\n\r\n" % (b"close" if who_ends == "server" else b"keep-alive"))
    answer = b""
    while not answer.partition(b"\r\n\r\n")[2].endswith(b"\n"):
        answer += s.recv(1000)
    answers.append((answer.split()[-1].decode(), retransmitted))
    if who_ends == "server":
        assert s.recv(1) == b""
    elif who_ends == "client":
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""
        # From then on the kernel gives the port to the same destination again: the next timestamp is another.
        time.sleep(1.5)
    else:
        # A reset, so that the client itself has nothing left of it.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
print(answers)
# One may meet what the machine has delayed of the connection before.
assert sum(retransmitted for _, retransmitted in answers) <= 1, answers
assert answers[0][0] == "42000", answers
P
node island
for host in 10.3.0.2 fd00:3::2; do
  on client python3 again.py $host server || fail "no answer"
  on client python3 again.py $host neither || fail "no answer"
  on client python3 again.py $host client || fail "no answer"
done
if grep -q 'another port' island.log; then fail "the port was not kept"; fi

# Where a service of the router has the port, it takes another one, of the client's address still.
on island python3 server.py > /dev/null 2>&1 & await 20 listens island 9000
other_port() { # CLIENT PORT URL
  local seen; seen=$(who $3 --local-port $2)
  [[ $seen = "$1 "* && $seen != *" $2" ]] || fail "$3 sees $seen"
}
other_port 10.1.0.2 9000 10.3.0.2:8080
other_port fd00:1::2 8081 '[fd00:3::2]:8080'
stop $pid
clean island
