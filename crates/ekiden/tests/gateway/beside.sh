# Filters of others, which end the chain, stay on the device; the gateway sees packets before them.
on router tc qdisc add dev wan0 clsact
for direction in ingress egress; do
  on router tc filter add dev wan0 $direction prio 1 protocol all bpf bytecode '1,6 0 0 4294967295' flowid 1:1
done
filters() { for direction in ingress egress; do on router tc filter show dev wan0 $direction; done | grep ^filter; }
filters > before
start
await 10 grep -q "on wan0 by tcx, before 2 programs of others" gateway.log
fetch 100000 2
is "s['counters']['begun'], s['counters']['tracked'] > 20" "(2, True)"
kill $gateway; wait $gateway
filters > after
[ "$(grep -c bytecode after)" -ge 2 ] && cmp before after || fail "$(cat before after)"
