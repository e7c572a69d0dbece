"""What counts of a run through a tunnel: shared by the judges of this folder."""

import collections
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
import records

WINDOW_US = 60_000_000

Run = collections.namedtuple("Run", "goodput rtt")


def flow(record, name, window_us=WINDOW_US):
    """Goodput in Mbit/s and mean smoothed round-trip time in ms of a flow's last minute; of several connections together, and their mean."""
    samples = [sample for sample in record.samples if sample["flow"] == name]
    end = max(sample["at_us"] for sample in samples)
    by_connection = collections.defaultdict(list)
    for sample in samples:
        if sample["at_us"] >= end - window_us:
            by_connection[sample["connection"]].append(sample)
    goodputs = {number: goodput(found) for number, found in by_connection.items() if len(found) > 1}
    rtts = [sample["rtt_us"] for found in by_connection.values() for sample in found if sample["rtt_us"]]
    return goodputs, rtts


def goodput(samples):
    received = samples[-1]["received_bytes"] - samples[0]["received_bytes"]
    return received * 8 / max(samples[-1]["at_us"] - samples[0]["at_us"], 1)


def run(record, name="bulk"):
    goodputs, rtts = flow(record, name)
    return Run(sum(goodputs.values()), statistics.fmean(rtts) / 1e3)


def jain(values):
    """Jain's index of fairness: 1 if all have the same."""
    values = list(values)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def shares(record):
    """Jain's index of the sixteen flows of scenarios/tunnel/fairness.toml, and their goodput."""
    flows = [run(record, f"bulk-{number}").goodput for number in range(16)]
    return jain(flows), sum(flows)


def shown_shares(runs):
    fair, goodput = zip(*runs)
    return f"{statistics.median(fair):.3f} [{min(fair):.3f}–{max(fair):.3f}], {statistics.median(goodput):.1f}"


def sparse(record):
    """Of the ping of scenarios/tunnel/sparse.toml: median and 99th percentile in ms of those that were answered, and the part that was not,
    within five seconds."""
    ping = record.pings[0]
    return ping.get("p50_us", 0) / 1e3, ping.get("p99_us", 0) / 1e3, ping["lost"] / ping["sent"]


def shown_sparse(runs):
    middle, late, lost = zip(*runs)
    if statistics.median(lost) > 0.5:
        return "over 5 s"
    times = f"{statistics.median(middle):,.0f}, {statistics.median(late):,.0f} [{min(late):,.0f}–{max(late):,.0f}] ms"
    return f"{times}, {statistics.median(lost):.1%} lost"


def files(record):
    """Goodput of a flow of files, and the mean of all samples' round-trip times: each connection has its own."""
    rtts = [sample["rtt_us"] for sample in record.samples if sample["rtt_us"]]
    return Run(record.goodput("bulk"), statistics.fmean(rtts) / 1e3 if rtts else 0.0)


SIZES = {"10KB": 1e4, "100KB": 1e5, "1MB": 1e6}


def beside(record):
    """Of scenarios/tunnel/files.toml: seconds for one of the files, and the bulk flow's goodput."""
    short = next(flow for flow in record.flows if flow["name"] == "short")
    files = short["received_bytes"] / SIZES[record.scenario["flow"]["short"]["file"]]
    return short["duration_us"] / 1e6 / max(files, 1e-3), run(record).goodput


def shown_beside(runs):
    seconds, goodput = zip(*runs)
    return f"{statistics.median(seconds):.2f} s, {statistics.median(goodput):.1f}"


def value(record, key):
    """A key of the scenario, such as link.backbone.delay; delays as the page writes them. What is off is not written out."""
    found = record.scenario
    for part in key.split("."):
        found = found.get(part, False)
    if isinstance(found, bool):
        return "yes" if found else "no"
    return "0" if found == "0s" else found


def grouped(folder, *keys, look=run):
    """What `look` finds in the runs of a folder, in lists by the values of these keys."""
    found = collections.defaultdict(list)
    for record in records.read(folder):
        if not record.is_complete:
            print(f"a flow failed: {record.path}", file=sys.stderr)
        found[tuple(value(record, key) for key in keys)].append(look(record))
    return found
