# Common to all client tests. Runs in the lab, in node "client"; p1 is the first proxy, and $EKIDEN the program.
set -euo pipefail
work=$(mktemp -d) && cd "$work"
# Where ssh and its servers look, whatever the environment says.
export HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
on() { ip netns exec "$@"; }

# Waits until something listens on a port of a node.
await() {
  for _ in $(seq 200); do
    on "$1" ss -Htln "sport = :$2" | grep . > /dev/null && return
    sleep 0.05
  done
  echo "nothing listens on $1:$2" >&2
  exit 1
}

# Serves the folder "served" of the server on port 8080.
serve() {
  (cd served && exec ip netns exec server python3 -m http.server 8080 >/dev/null 2>&1) &
  await server 8080
}

mkdir served
head -c 3000000 /dev/urandom > served/file
