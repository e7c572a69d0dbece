"""Records of runs, as the scripts of bench read them: the one reader, so that none has rules of its own.

What a record holds: docs/guide/record.md. Whether the machine disturbed a run is ekiden's to say (crates/record/src/disturbance.rs), in the
record's field `disturbed`."""

import csv
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
EKIDEN = pathlib.Path(os.environ.get("EKIDEN", TARGET / "release/ekiden"))


class Record:
    """One run. Flows and links are as in the file."""

    def __init__(self, path):
        self.path = path
        self._content = json.loads(path.read_text())
        self.flows, self.links = (self._content[key] for key in ("flows", "links"))
        self.pings, self.events = (self._content.get(key, []) for key in ("pings", "events"))
        self.stolen_percent = self._content.get("stolen_percent")

    @functools.cached_property
    def samples(self):
        """The senders' states, ordered by time. They are beside the record; ekiden reads them, so that no script needs a library."""
        asked = subprocess.run([EKIDEN, "record", "export", "--csv", self.path], capture_output=True, text=True)
        if asked.returncode:
            sys.exit(asked.stderr.strip())
        rows = csv.DictReader(asked.stdout.splitlines())
        return [{key: value if key == "flow" else int(value) if value else None for key, value in row.items()} for row in rows]

    @functools.cached_property
    def scenario(self):
        """The scenario with every default written out."""
        return tomllib.loads(self._content["manifest"]["scenario"])

    @property
    def seed(self):
        return self._content["manifest"]["seed"]

    @property
    def is_complete(self):
        """Whether every flow arrived whole and unchanged."""
        return all(flow["outcome"]["kind"] == "complete" for flow in self.flows)

    @functools.cached_property
    def disturbed(self):
        """What the machine did to the run, or None."""
        if "disturbed" in self._content:
            return self._content["disturbed"]
        # Written by an ekiden that did not say it; today's finds out.
        try:
            shown = subprocess.run([EKIDEN, "record", "show", "--json", self.path], check=True, capture_output=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"{self.path} does not say whether its run was disturbed, and ekiden cannot be asked: {error}")
        return json.loads(shown)["disturbed"]

    @property
    def disturbance(self):
        """The same for people."""
        overruns, late = self.disturbed["overruns"], self.disturbed["lateness_p99_us"]
        once = self.disturbed.get("lateness_max_us")  # older records lack it
        parts = [f"{overruns} overruns"] if overruns else []
        parts += [f"{late / 1000:.1f} ms late"] if late is not None else []
        parts += [f"once {once / 1000:.1f} ms late"] if once is not None else []
        waited = self.disturbed.get("waited_percent")
        parts += [f"{waited:.0f} % without a processor"] if waited is not None else []
        return ", ".join(parts)

    def goodput(self, *names):
        """Of the flows that are named, of all if none is, together, in Mbit/s."""
        by_name = {flow["name"]: flow for flow in self.flows}
        flows = [by_name[name] for name in names] if names else self.flows
        return sum(flow["goodput_bit_s"] for flow in flows) / 1e6


def read(folder):
    """The records in a folder, by name, one at a time: many are large."""
    return (Record(path) for path in sorted(folder.glob("*.json")))


def complete(folder):
    """The same without runs in which a flow failed, which are named on standard error."""
    for record in read(folder):
        if record.is_complete:
            yield record
        else:
            print(f"left out, a flow failed: {record.path}", file=sys.stderr)


def spread(values, digits, terse=False):
    """The median, and the least and the greatest of several in brackets; if terse, only where they differ as shown."""
    values = list(values)
    middle, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 or (terse and least == most) else f"{middle} [{least}–{most}]"
