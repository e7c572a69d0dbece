# Common to all client tests. Runs in the lab, in node "client"; p1 is the first proxy, and $EKIDEN the program.
work=$(mktemp -d) && cd "$work"
# Where ssh and its servers look, whatever the environment says.
export HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
# Serves the folder "served" of the server on port 8080.
serve() {
  (cd served && exec ip netns exec server python3 -m http.server 8080 >/dev/null 2>&1) &
  await 20 listens server 8080
}

mkdir served
head -c 3000000 /dev/urandom > served/file
