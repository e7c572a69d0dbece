# What could not work is refused at the start, with what to do.
config() { # INTERFACE MORE
  printf 'name = "island"\n[listen.v4]\nkind = "transparent"\naddress = "127.0.0.1:3129"\ninterfaces = ["%s"]\n%s\n' "$1" "$2"
}
refused() { # TEXT: said in one line, with exit code 4 and nothing left.
  local code=0
  on island timeout 60 "$EKIDEN" proxy -c island.toml > refused.out 2> refused.log || code=$?
  [ $code = 4 ] && [ $(wc -l < refused.log) = 1 ] && grep -q "$1" refused.log || fail "$code: $(cat refused.log)"
  clean island
}
config lan7 '' > island.toml
refused "there is no network interface 'lan7' here.*late_interfaces = true"
config lan0 '' > island.toml
on island sysctl -qw net.ipv4.ip_forward=0
refused 'net.ipv4.ip_forward = 0.*sysctl net.ipv4.ip_forward=1'
# One interface that forwards is enough.
on island sysctl -qw net.ipv4.conf.lan0.forwarding=1
node island; stop $pid
on island sysctl -qw net.ipv4.ip_forward=1

# An interface that may come later is taken from when it comes.
config lan7 'late_interfaces = true' > island.toml
node island
sees 10.1.0.2 10.3.0.2:8080
ip -n island link set lan0 down && ip -n island link set lan0 name lan7 && ip -n island link set lan7 up
sees 10.2.0.1 10.3.0.2:8080
stop $pid
clean island
