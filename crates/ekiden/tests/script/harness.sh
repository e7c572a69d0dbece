# Before each script. $EKIDEN is the program.
set -Eeuo pipefail
# What a test tells of its nodes when it fails, besides their logs.
tell() { :; }
trap 'echo "line $LINENO: $BASH_COMMAND" >&2; tell >&2 || true; tail -n 30 *.log >&2 || true' ERR
fail() { echo "$*" >&2; tell >&2 || true; tail -n 30 *.log >&2 || true; exit 1; }
# await SECONDS COMMAND…: until it succeeds; four times as long where the machine is busy.
await() {
  local end=$((SECONDS + 4 * $1)); shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "waited in vain for: $*"
    sleep 0.05
  done
}
# on NODE COMMAND…
on() { ip netns exec "$@"; }
listens() { on $1 ss -Htln "sport = :$2" | grep . > /dev/null; }
# network NODE…: machines that forward.
network() {
  mount --make-rprivate /
  mount -t tmpfs none /run && mkdir /run/netns
  local node
  for node in "$@"; do
    ip netns add $node
    on $node sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
    ip -n $node link set lo up
  done
}
# link NODE DEVICE ADDRESS,… NODE DEVICE ADDRESS,…: a cable between two of them.
link() {
  ip link add $2 netns $1 type veth peer name $5 netns $4
  addresses $1 $2 $3; addresses $4 $5 $6
  ip -n $1 link set $2 up; ip -n $4 link set $5 up
}
addresses() {
  local address
  for address in ${3//,/ }; do
    case $address in
      *:*) ip -n $1 address add $address dev $2 nodad ;;
      *) ip -n $1 address add $address dev $2 ;;
    esac
  done
}
