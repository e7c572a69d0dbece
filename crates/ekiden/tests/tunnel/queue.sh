start city; start island; carries island
on router tc qdisc add dev line1 root tbf rate 10mbit burst 3000 limit 30000
echo_at city 10.77.0.1
await 20 ask island 10.77.0.1
on city iperf3 -s -1 -B 10.77.0.1 > /dev/null & sleep 1
on island iperf3 -c 10.77.0.1 -t 12 -P 8 --json > load.json & load=$!
sleep 5
busy=$(ask island 10.77.0.1 60)
wait $load
python3 - "$busy" <<'P'
import json, sys
busy = float(sys.argv[1])
rate = json.load(open("load.json"))["end"]["sum_received"]["bits_per_second"] / 1e6
# 30 KB of the line's own queue are 24 ms; the tunnel's queue of eight flows would be seconds.
print(f"{busy} ms beside {rate:.1f} Mbit/s")
assert rate > 6 and busy < 150, (rate, busy)
P
