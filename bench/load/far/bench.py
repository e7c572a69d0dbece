#!/usr/bin/env python3
"""Downloads over long paths, ekiden beside what people use instead. See `run`."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lib"))

import lines
from paths import PATHS
from ways import WAYS

HERE = Path(__file__).resolve().parent


def measure(path, ways, args):
    """What each way carries over this path, in a lab of its own."""
    with tempfile.TemporaryDirectory() as folder:
        scenario, asked, said = (Path(folder) / name for name in ("far.toml", "asked.json", "said.json"))
        scenario.write_text(path.scenario())
        wants = {"ways": ways, "seconds": args.seconds, "beside": path.beside, "rate": path.mean or path.rate}
        asked.write_text(json.dumps(wants | {"ekiden": str(args.ekiden), "peers": str(args.peers), "folder": folder, "said": str(said)}))
        lab = [args.ekiden, "lab", "shell", scenario, "client", "--", sys.executable, HERE / "inside.py", asked]
        done = subprocess.run(lab, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 + len(ways) * (args.seconds + 30))
        if done.returncode:
            sys.exit(f"bench-far: {path.name}: {done.stderr.strip()}")
        sys.stderr.write("".join(f"bench-far: {path.name}: {line}\n" for line in done.stderr.splitlines() if line.startswith("not measured")))
        return json.loads(said.read_text())


def table(path, results):
    """A line for each way: medians of the rounds, their range, and of what the line carries."""
    print(f"\n{path.name}: {path.rate:g} Mbit/s, {path.rtt:g} ms; {path.carries:.1f} Mbit/s can be carried")
    for way in dict.fromkeys(result["way"] for result in results):
        rounds = [result for result in results if result["way"] == way]
        got = sorted(one["mbit"] for one in rounds)
        middle = statistics.median(got)
        parts = [f"{middle:6.1f}", f"{middle / path.carries:5.2f}" if not path.beside else f"other {statistics.median(one['other'] for one in rounds):5.1f}"]
        if len(got) > 1:
            parts.append(f"[{got[0]:.1f} to {got[-1]:.1f}]")
        first = statistics.median(one["first_mb_s"] for one in rounds)
        parts.append(f"first MB {first:.2f} s" if first < rounds[0]["seconds"] else "no MB")
        work = [one["cpu_s_gb"] for one in rounds if one["cpu_s_gb"] is not None]
        if work:
            parts.append(f"{statistics.median(work):.1f} s of processor a GB")
        print(f"  {way:24} {'  '.join(parts)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ekiden", type=Path, required=True)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--paths", default="")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    chosen = [part.strip() for part in args.only.split(";") if part.strip()]
    if unknown := [name for name in chosen if name not in WAYS]:
        sys.exit(f"bench-far: there is no way '{unknown[0]}' (there are {'; '.join(WAYS)})")
    ways = chosen or list(WAYS)
    if not (args.peers / "sing-box").exists() and (missing := [name for name in ways if name.startswith("Hysteria")]):
        print(f"not measured, for sing-box is not there: {', '.join(missing)}", flush=True)
        ways = [name for name in ways if name not in missing]
    wanted = [part.strip() for part in args.paths.split(";") if part.strip()]
    if unknown := [name for name in wanted if name not in {path.name for path in PATHS}]:
        sys.exit(f"bench-far: there is no path '{unknown[0]}' (there are {'; '.join(path.name for path in PATHS)})")
    paths = [path for path in PATHS if not wanted or path.name in wanted]

    done = lines.kept(args.out) if args.out else []
    for number in range(args.rounds):
        for path in paths:
            left = [way for way in ways if not any((one["path"], one["round"], one["way"], one["seconds"]) == (path.name, number, way, args.seconds) for one in done)]
            if not left:
                continue
            print(f"round {number + 1} of {args.rounds}: {path.name}", file=sys.stderr, flush=True)
            fresh = [{"path": path.name, "round": number, "seconds": args.seconds} | one for one in measure(path, left, args)]
            done += fresh
            if args.out:
                with open(args.out, "a") as file:
                    file.writelines(json.dumps(one) + "\n" for one in fresh)
    for path in paths:
        table(path, [one for one in done if one["path"] == path.name and one["way"] in ways and one["seconds"] == args.seconds])


if __name__ == "__main__":
    main()
