"""What becomes of parallel streams in a run: their thresholds and their times."""

import csv
import statistics
import subprocess
import sys

import records

# The slow start's congestion is over, and what it has done to the thresholds is done.
SETTLED_US = 21_000_000
# At most this threshold is a collapse.
COLLAPSED = 10


def thresholds(record):
    """By stream, the least `ssthresh` up to then. Only the columns that it needs are turned into numbers: samples are many."""
    asked = subprocess.run([records.EKIDEN, "record", "export", "--csv", record.path], capture_output=True, text=True)
    if asked.returncode:
        sys.exit(asked.stderr.strip())
    rows = csv.reader(asked.stdout.splitlines())
    header = next(rows)
    at, stream, threshold = (header.index(name) for name in ("at_us", "flow", "ssthresh_segments"))
    least = {}
    for row in rows:
        if int(row[at]) > SETTLED_US:
            break
        if row[threshold]:
            value = int(row[threshold])
            if value < least.get(row[stream], value + 1):
                least[row[stream]] = value
    return least


class Outcome:
    """Of one run: the least threshold of any stream after the first congestion, how many streams have collapsed by then, and how
    long the slowest and the middle stream took."""

    def __init__(self, record):
        least = thresholds(record)
        self.least = min(least.values())
        self.collapsed = sum(threshold <= COLLAPSED for threshold in least.values())
        # From the first data to its last acknowledgement, as the paper counts. The record counts from the SYN, which ns-2's agents
        # do not send, to the last arrival.
        shift_us = statistics.median(flow["rtt_min_us"] for flow in record.flows) / 2
        times = [(flow["duration_us"] - shift_us) / 1e6 for flow in record.flows]
        self.slowest, self.middle = max(times), statistics.median(times)


def table(header, rows):
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()
