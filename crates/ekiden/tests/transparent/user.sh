# A node that is no root, with CAP_NET_ADMIN from whoever starts it, changes and removes its rules too. It runs the system's nft,
# whatever PATH says and whatever is in the working directory.
cp "$EKIDEN" ekiden && chmod 755 . ekiden
mkdir -m 777 marks
printf '#!/bin/sh\ntouch "%s/marks/foreign"\n' "$PWD" > nft && chmod 755 nft
cat > island.toml <<T
name = "island"
$listeners
[exit]
client_addresses = ["10.0.0.0/8"]
T
# as_user AMBIENT COMMAND…: becomes the command, as nobody and with these ambient capabilities.
as_user() {
  local ambient=$1; shift
  exec ip netns exec island setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps "$ambient" --ambient-caps "$ambient" "$@"
}
EKIDEN_LOG=trace as_user +net_admin env -u PATH ./ekiden proxy -c island.toml > island.out 2> island.log &
pid=$!
await 20 grep -q '^ready' island.out
sees_client 10.1.0.2 10.3.0.2:8080
[ "$(on island nft list table inet ekiden_island | grep -c 'chain listener')" = 2 ]

# SIGHUP
sed -i 's/interfaces = \["lan0"\]/&\nexcept = ["*:8081"]/' island.toml
kill -HUP $pid
await 20 grep -q 'configuration was read again' island.log
on island nft list table inet ekiden_island | grep 'tcp dport 8081 return' > /dev/null || fail "$(on island nft list ruleset)"

# What it lends nft, none of its threads keeps.
for status in /proc/$pid/task/*/status; do
  grep -q '^CapAmb:\s*0*$' $status && grep -q '^CapInh:\s*0*$' $status || fail "$(cat $status)"
done

# Drain and removal
stop $pid
clean island
[ ! -e marks/foreign ] || fail "nft of the working directory was run"

# Without the capability it says what it needs.
code=0; (as_user -all ./ekiden proxy -c island.toml > none.out 2> none.log) || code=$?
[ $code = 4 ] && grep -q 'needs CAP_NET_ADMIN' none.log || fail "$code: $(cat none.log)"
