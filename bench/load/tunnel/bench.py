"""One TCP flow through tunnels between two namespaces, side by side: Gbit/s, and processor time for both ends together; and on a slow
line the round trips beside it.

Runs as root in mount, network and process namespaces of its own (./run makes them): nothing of it is left when it ends.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ways
from ways import LEFT, RIGHT, inside, ip, quiet

TICKS = os.sysconf("SC_CLK_TCK")
HERE = Path(__file__).resolve().parent
# How long a flow on the slow line lasts.
SLOW_SECONDS = 20


def network():
    """Two namespaces with a veth pair between them, its offloads as they are."""
    quiet("mount", "--make-rprivate", "/")
    quiet("mount", "-t", "tmpfs", "none", "/run")
    os.mkdir("/run/netns")
    # SoftEther keeps its state there, whatever it is told.
    quiet("mount", "-t", "tmpfs", "none", "/var/lib")
    for name in (LEFT, RIGHT):
        quiet("ip", "netns", "add", name)
        ip(name, "link", "set", "lo", "up")
        # CUBIC is refused in new namespaces, and BBR may be the host's default.
        inside(name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno", "net.ipv6.conf.default.accept_dad=0")
    quiet("ip", "link", "add", "wire", "netns", LEFT, "type", "veth", "peer", "name", "wire", "netns", RIGHT)
    for name, address in ((LEFT, "192.0.2.1/24"), (RIGHT, "192.0.2.2/24")):
        ip(name, "address", "add", address, "dev", "wire")
        ip(name, "link", "set", "wire", "up")


# Of the slow line: Mbit/s, the round trip in ms, and the buffer of each direction: 200 ms.
SLOW = ("10", "40", "250000")


def slow_line():
    """The same two namespaces with a slow line between them, in place of the wire. Returns its process."""
    quiet("ip", "-n", LEFT, "link", "del", "wire")
    quiet("ip", "netns", "add", "between")
    for name, address in ((LEFT, "192.0.2.1/24"), (RIGHT, "192.0.2.2/24")):
        quiet("ip", "link", "add", "wire", "netns", name, "type", "veth", "peer", "name", name, "netns", "between")
        ip(name, "address", "add", address, "dev", "wire")
        ip(name, "link", "set", "wire", "up")
        ip("between", "link", "set", name, "up")
        off = f"import sys; sys.path.insert(0, '{HERE}'); sys.argv = ['']; import line; line.without_offloads('wire')"
        inside(name, "python3", "-c", off)
    line = ways.start("between", "python3", HERE / "line.py", LEFT, RIGHT, *SLOW, stdout=subprocess.PIPE, text=True)
    if line.stdout.readline().strip() != "ready":
        raise RuntimeError("the slow line does not begin")
    return line


def busy_ticks():
    """Time that all processors were busy since the start, with what the kernel does for packets."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return user + nice + system + irq + softirq


def process_ticks(names):
    """Processor time of the processes with these names. /proc shows those of this namespace alone."""
    total = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = file.read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        if name in names:
            total += int(rest[11]) + int(rest[12])
    return total


def idle(seconds):
    """How busy the machine is while nothing is sent, in ticks per second."""
    before, begin = busy_ticks(), time.monotonic()
    time.sleep(seconds)
    return (busy_ticks() - before) / (time.monotonic() - begin)


def measure(way, seconds):
    """One iperf3 flow from left to right."""
    server = ways.start(RIGHT, "iperf3", "-s", "-1", "-B", way.far)
    time.sleep(0.5)
    base = idle(1.5)
    busy, own, begin = busy_ticks(), process_ticks(way.names), time.monotonic()
    client = subprocess.run(
        ["ip", "netns", "exec", LEFT, "iperf3", "-c", way.far, "-C", "reno", "-t", str(seconds), "--json"],
        capture_output=True, text=True, timeout=seconds + 30)
    wall = time.monotonic() - begin
    busy, own = busy_ticks() - busy, process_ticks(way.names) - own
    server.wait(timeout=10)
    end = json.loads(client.stdout)
    if "error" in end:
        raise RuntimeError(end["error"])
    received = end["end"]["sum_received"]
    gigabytes = received["bytes"] / 1e9
    return {
        "gbit_s": received["bits_per_second"] / 1e9,
        "cpu_s_gb": own / TICKS / gigabytes,
        "machine_s_gb": max(busy - base * wall, 0) / TICKS / gigabytes,
        "idle_share": base / TICKS / (os.cpu_count() or 1),
    }


def pings(far, seconds):
    """Round trips to the other end, in ms."""
    said = inside(LEFT, "python3", HERE / "ping.py", "client", far, str(seconds)).stdout
    return sorted(map(float, said.split()))


def measure_slow(way, seconds):
    """Round trips on the idle line, then beside one iperf3 flow, from left to right."""
    echo = ways.start(RIGHT, "python3", HERE / "ping.py", "server", way.far)
    server = ways.start(RIGHT, "iperf3", "-s", "-1", "-B", way.far)
    try:
        time.sleep(0.5)
        idle_ms = pings(way.far, 3)
        client = ways.start(LEFT, "iperf3", "-c", way.far, "-C", "reno", "-t", str(seconds), "--json", stdout=subprocess.PIPE, text=True)
        # The first seconds are slow start.
        time.sleep(3)
        loaded_ms = pings(way.far, seconds - 5)
        said, _ = client.communicate(timeout=seconds + 60)
        end = json.loads(said)
        if "error" in end or not idle_ms or not loaded_ms:
            raise RuntimeError(end.get("error", "no pings came back"))
        return {
            "mbit_s": end["end"]["sum_received"]["bits_per_second"] / 1e6,
            "idle_ms": statistics.median(idle_ms),
            "loaded_ms": statistics.median(loaded_ms),
            "loaded_p95_ms": loaded_ms[int(len(loaded_ms) * 0.95)],
        }
    finally:
        for process in (echo, server):
            process.kill()
            process.wait()


def figure(values):
    form = "{:.1f}" if max(values) >= 10 else "{:.2f}"
    show = lambda value: form.format(value)
    return f"{show(statistics.median(values))} [{show(min(values))}–{show(max(values))}]"


FAST = {"gbit_s": "Gbit/s", "cpu_s_gb": "CPU s/GB, both ends", "machine_s_gb": "machine CPU s/GB"}
BESIDE = {"mbit_s": "download, Mbit/s", "idle_ms": "ping idle, ms", "loaded_ms": "ping beside it, ms", "loaded_p95_ms": "95th percentile, ms"}


def table(results, columns, missing):
    print(f"\n| tunnel | {' | '.join(columns.values())} |\n|---{'|---' * len(columns)}|")
    for name, rounds in results.items():
        cells = [figure([one[key] for one in rounds]) for key in columns]
        print(f"| {name} | {' | '.join(cells)} |")
    for name in missing:
        print(f"| {name} | not measured: its program is not here |{' |' * (len(columns) - 1)}")


def ratio(results, over, under, key):
    """Of medians."""
    median = lambda name: statistics.median(one[key] for one in results[name])
    # On a busy machine the rest of its time may be nothing.
    return median(over) / median(under) if median(under) > 0 else float("nan")


def verdicts(results):
    """Returns whether every aim that was measured is reached."""
    rows = []
    for name in ("ekiden", "ekiden, TLS"):
        if name in results and "passthrough" in results:
            aim = 1.7 if name == "ekiden" else None
            for key, what in (("cpu_s_gb", "CPU per GB"), ("machine_s_gb", "machine CPU per GB")):
                value = ratio(results, name, "passthrough", key)
                rows.append((f"{name}, {what} beside the passthrough", value, aim if key == "cpu_s_gb" else None, "≤"))
        peers = [peer.name for peer in ways.WAYS if peer.is_peer and peer.is_secret == (name != "ekiden") and peer.name in results]
        if name in results and peers:
            best = max(peers, key=lambda peer: statistics.median(one["gbit_s"] for one in results[peer]))
            rows.append((f"{name}, Gbit/s beside the best peer over TCP ({best})", ratio(results, name, best, "gbit_s"), 5, "≥"))
    for name in [way.name for way in ways.WAYS if way.name.endswith("UDP") and way.name in results]:
        if "ekiden, TLS" in results:
            rows.append((f"ekiden, TLS, Gbit/s beside {name}", ratio(results, "ekiden, TLS", name, "gbit_s"), None, "≥"))
            rows.append((f"ekiden, TLS, CPU per GB beside {name}", ratio(results, "ekiden, TLS", name, "cpu_s_gb"), None, "≤"))
    print("\n| | ratio | aim | |\n|---|---|---|---|")
    reached = True
    for what, value, aim, sign in rows:
        good = aim is None or (value <= aim if sign == "≤" else value >= aim)
        reached &= good
        verdict = "" if aim is None else "reached" if good else "missed"
        print(f"| {what} | {value:.2f} | {'–' if aim is None else f'{sign} {aim}'} | {verdict} |")
    return reached


def rounds_of(chosen, measure_one, seconds, candidates, show):
    """Starts and measures each tunnel alone, in random order. Returns what came out, and how often each has failed."""
    results, failures = {}, {}
    for number in range(chosen.rounds):
        order = [way for way in candidates if failures.get(way.name, 0) < 2]
        random.Random(number).shuffle(order)
        for way in order:
            with tempfile.TemporaryDirectory() as folder:
                running = []
                try:
                    way.begin(ways.Place(Path(folder), chosen.programs, chosen.peers, running))
                    ways.await_answer(way.far)
                    one = measure_one(way, seconds)
                    results.setdefault(way.name, []).append(one)
                    print(f"round {number + 1}: {way.name}: {show(one)}", file=sys.stderr)
                except Exception as error:
                    failures[way.name] = failures.get(way.name, 0) + 1
                    print(f"round {number + 1}: {way.name} failed: {error}", file=sys.stderr)
                    for log in sorted(Path(folder).rglob("*.log")):
                        print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
                finally:
                    ways.stop(running, way.names)
    return {way.name: results[way.name] for way in candidates if way.name in results}, failures


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--programs", type=Path, required=True, help="the folder of ekiden and its examples")
    arguments.add_argument("--peers", type=Path, required=True, help="where ./peers has unpacked them")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=4)
    arguments.add_argument("--only", help="names of tunnels, with semicolons between them")
    arguments.add_argument("--part", choices=["fast", "slow"], help="one of the two tables alone")
    arguments.add_argument("--json", type=Path)
    chosen = arguments.parse_args()
    chosen.programs, chosen.peers = chosen.programs.resolve(), chosen.peers.resolve()
    network()
    only = [name.strip() for name in chosen.only.split(";")] if chosen.only else [way.name for way in ways.WAYS]
    wanted = [way for way in ways.WAYS if way.name in only]
    missing = [way.name for way in wanted if way.missing(chosen.peers)]
    for name in missing:
        print(f"bench-tunnel: {name} is not measured: its program is not in {chosen.peers}", file=sys.stderr)
    wanted = [way for way in wanted if way.name not in missing]
    fast, slow, failed, reached = {}, {}, {}, True
    if chosen.part != "slow":
        show = lambda one: (f"{one['gbit_s']:.2f} Gbit/s, {one['cpu_s_gb']:.3f} s/GB, machine {one['machine_s_gb']:.3f} s/GB "
                            f"(else {one['idle_share']:.0%})")
        fast, failed = rounds_of(chosen, measure, chosen.seconds, [way for way in wanted if way.name != "no tunnel"], show)
        table(fast, FAST, missing)
        reached = verdicts(fast)
    if chosen.part != "fast":
        line = slow_line()
        show = lambda one: ", ".join(f"{what} {one[key]:.1f}" for key, what in BESIDE.items())
        slow, also = rounds_of(chosen, measure_slow, SLOW_SECONDS, [way for way in wanted if way.is_common], show)
        line.kill()
        failed |= also
        table(slow, BESIDE, missing)
    if chosen.json:
        chosen.json.write_text(json.dumps({"fast": fast, "slow": slow}, indent=1))
    sys.exit(0 if reached and not failed else 1)


if __name__ == "__main__":
    main()
