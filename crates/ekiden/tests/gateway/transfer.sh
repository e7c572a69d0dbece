# A slow line with a short queue: slow starts overshoot, windows are lowered, with offloads on and off; every byte arrives as sent.
on far tc qdisc add dev line1 root tbf rate 100mbit burst 10k limit 90000
on sender sysctl -qw net.ipv4.tcp_congestion_control=reno net.ipv4.tcp_no_metrics_save=1
# The path of these namespaces has no delay, on which the default policy sees no slow start.
printf 'policy = "paper"\nrepeats = 3\nshortest_rtt = "0s"\n' >> gateway.toml
start
for offload in 1 0; do
  for device in "sender eth0" "router lan0" "router wan0" "far line0" "far line1" "receiver eth0"; do
    checksums $device $offload
  done
  before=$(of "s['counters']['rewritten']")
  fetch 2000000 8
  is "s['counters']['rewritten'] > $before" True || fail "no window was lowered: $(on router "$EKIDEN" gateway status wan0)"
done
is "s['groups'][0]['throttlings'] > 0, s['counters']['malformed']" "(True, 0)"
await 10 grep -q "tokyo: congestion in 10.1.0.2:" gateway.log
# One that nobody answers.
on sender timeout 1 bash -c 'exec 3<> /dev/tcp/192.0.2.9/5001' || true
is "[stream['state'] for stream in s['streams'] if stream['receiver'] == '192.0.2.9:5001']" "['opening']" || fail "$(of s)"
# A stranger out there who sends as one of the hosts in here: what comes from there is no sender's.
on far ip address add 10.1.0.77/32 dev lo
on far ip route add 192.0.2.66 via 198.51.100.1 src 10.1.0.77
read -r packets begun <<< $(of "s['counters']['packets'], s['counters']['begun']" | tr -d '(,)')
on far timeout 1 bash -c 'exec 3<> /dev/tcp/192.0.2.66/80' || true
is "s['counters']['packets'] >= $packets + 2, s['counters']['begun'] - $begun" "(True, 0)" || fail "$(of s)"
