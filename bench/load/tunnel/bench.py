"""One TCP flow through tunnels between two namespaces, side by side: Gbit/s, and processor time for both ends together.

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


def figure(values):
    form = "{:.1f}" if max(values) >= 10 else "{:.2f}"
    show = lambda value: form.format(value)
    return f"{show(statistics.median(values))} [{show(min(values))}–{show(max(values))}]"


def table(results):
    print("| tunnel | Gbit/s | CPU s/GB, both ends | machine CPU s/GB |\n|---|---|---|---|")
    for name, rounds in results.items():
        cells = [figure([one[key] for one in rounds]) for key in ("gbit_s", "cpu_s_gb", "machine_s_gb")]
        print(f"| {name} | {' | '.join(cells)} |")


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
            rows.append((f"{name}, Gbit/s beside the best peer ({best})", ratio(results, name, best, "gbit_s"), 5, "≥"))
    print("\n| | ratio | aim | |\n|---|---|---|---|")
    reached = True
    for what, value, aim, sign in rows:
        good = aim is None or (value <= aim if sign == "≤" else value >= aim)
        reached &= good
        verdict = "" if aim is None else "reached" if good else "missed"
        print(f"| {what} | {value:.2f} | {'–' if aim is None else f'{sign} {aim}'} | {verdict} |")
    return reached


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--programs", type=Path, required=True, help="the folder of ekiden and its examples")
    arguments.add_argument("--peers", type=Path, required=True, help="where ./peers has unpacked them")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=4)
    arguments.add_argument("--only", help="names of tunnels, with semicolons between them")
    arguments.add_argument("--json", type=Path)
    chosen = arguments.parse_args()
    chosen.programs, chosen.peers = chosen.programs.resolve(), chosen.peers.resolve()
    network()
    only = [name.strip() for name in chosen.only.split(";")] if chosen.only else [way.name for way in ways.WAYS]
    results, failures = {}, {}
    for number in range(chosen.rounds):
        order = [way for way in ways.WAYS if way.name in only and failures.get(way.name, 0) < 2]
        random.Random(number).shuffle(order)
        for way in order:
            with tempfile.TemporaryDirectory() as folder:
                running = []
                try:
                    way.begin(ways.Place(Path(folder), chosen.programs, chosen.peers, running))
                    ways.await_answer(way.far)
                    one = measure(way, chosen.seconds)
                    results.setdefault(way.name, []).append(one)
                    print(f"round {number + 1}: {way.name}: {one['gbit_s']:.2f} Gbit/s, {one['cpu_s_gb']:.3f} s/GB, "
                          f"machine {one['machine_s_gb']:.3f} s/GB (else {one['idle_share']:.0%})", file=sys.stderr)
                except Exception as error:
                    failures[way.name] = failures.get(way.name, 0) + 1
                    print(f"round {number + 1}: {way.name} failed: {error}", file=sys.stderr)
                    for log in sorted(Path(folder).rglob("*.log")):
                        print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
                finally:
                    ways.stop(running, way.names)
    order = [way.name for way in ways.WAYS if way.name in results]
    results = {name: results[name] for name in order}
    table(results)
    reached = verdicts(results)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1))
    sys.exit(0 if reached and not failures else 1)


if __name__ == "__main__":
    main()
