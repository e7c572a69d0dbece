"""Runs a measuring server and a client at the ends of one emulated line, and draws lines at random."""

import json
import math
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
EKIDEN = pathlib.Path(os.environ.get("EKIDEN", TARGET / "release/ekiden"))

# The nodes' addresses follow from their order.
SERVER = "10.77.0.2"
SERVER_BEHIND_ROUTER = "10.77.0.3"

SCRIPT = """
rm -f "$1"
ip netns exec server "$0" measure server --key {keys}/server.key --node client={client} --listen {server} >"$1" 2>&1 &
server=$!
for _ in $(seq 100); do grep -q listening "$1" && break; sleep 0.05; done
shift
{before} || exit
"$0" measure "$@" {server} --key {keys}/client.key --fingerprint {fingerprint} --json
code=$?
kill $server {after}
exit $code
"""


def logarithmic(random, least, most):
    return math.exp(random.uniform(math.log(least), math.log(most)))


def shaping(line):
    """What makes a router of a scenario a shaper: a token bucket with a queue behind it."""
    rate, burst, limit = line["shaper"]
    device = f"$(ip netns exec router ip -o route get {SERVER_BEHIND_ROUTER} | grep -o 'dev [^ ]*' | cut -d' ' -f2)"
    return f"ip netns exec router tc qdisc add dev {device} root tbf rate {rate:.0f}bit burst {burst:.0f}b limit {limit:.0f}b"


def scenario(line, tcp='congestion = "reno"\nreceive_buffer = "256MiB"\nsend_buffer = "256MiB"', mtu=1500):
    """A client, a server, and a line between them. `line`: rate in bit/s, rtt in ms, queue in bytes, loss as a part, policer. With a shaper a
    router stands behind the line."""
    keys = [
        f'rate = "{line["rate"]:.0f}bit/s"',
        f'delay = "{line["rtt"] * 500:.0f}us"',
        f'queue = "{line["queue"]:.0f}B"',
        f'mtu = {mtu}' if mtu != 1500 else "",
        f'loss = "{line["loss"] * 1e6:.0f}ppm"' if line.get("loss") else "",
        f'loss_burst = {line["run"]}' if line.get("run", 1) > 1 else "",
        f'jitter = "{line["jitter"] * 1e3:.0f}us"' if line.get("jitter") else "",
    ]
    if "policer" in line:
        rate, burst = line["policer"]
        keys.append(f'policer.rate = "{rate:.0f}bit/s"\npolicer.burst = "{burst:.0f}B"')
    text = "\n".join(key for key in keys if key)
    end, router, behind = "server", "", ""
    if "shaper" in line:
        end, router = "router", '[node.router]\nkind = "router"\n'
        behind = '[link.behind]\nends = ["router", "server"]\nrate = "1Gbit/s"\n'
    return f"""name = "line"
seed = {line.get("seed", 1)}
[tcp]
{tcp}
[node.client]
{router}[node.server]
[link.line]
ends = ["client", "{end}"]
{text}
{behind}[flow.none]
from = "client"
to = "server"
bytes = "1kB"
"""


def key(file):
    """The fingerprint of a key, which is made if it is not there. A server that knows its client may use all congestion controls and buffers."""
    made = [EKIDEN, "keygen", *(["--show"] if file.exists() else []), file]
    return next(word for word in subprocess.run(made, check=True, capture_output=True, text=True).stdout.split() if word.startswith("sha256:"))


def measure(directory, text, arguments, before="true", after=""):
    """Runs `ekiden measure ARGUMENTS` at the client of a scenario. Returns its JSON; raises with what it said."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "line.toml"
    file.write_text(text)
    client, fingerprint = (key(directory / f"{end}.key") for end in ("client", "server"))
    server = f"{SERVER_BEHIND_ROUTER if '[node.router]' in text else SERVER}:7100"
    script = SCRIPT.format(server=server, before=before, after=after, keys=directory, client=client, fingerprint=fingerprint)
    command = [EKIDEN, "lab", "shell", file, "client", "--", "sh", "-c", script, EKIDEN, directory / "server.log", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"code {done.returncode}")
    return json.loads(done.stdout)
