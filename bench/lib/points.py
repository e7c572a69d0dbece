"""Points of measurements: CSV files in long form, one row a point, from which judges print the short tables of a page and draw its pictures.

A page's files are in the folder of its name: docs/measurements/tunnel/ for tunnel. A judge makes them from records, and needs none for the rest."""

import argparse
import csv
import pathlib
import statistics

# What the columns of a spread end in.
MEDIAN, LEAST, GREATEST = ENDS = ("median", "least", "greatest")


def arguments(about, parts=False):
    """What every judge of a page is called with; with parts also which of them."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", type=pathlib.Path, help="what the runs left; without it the CSV files are taken as they are")
    if parts:
        parser.add_argument("parts", nargs="*", help="only these")
    parser.add_argument("--csv", type=pathlib.Path, metavar="FOLDER", help="where CSV files and pictures are and go to; RECORDS without it")
    found = parser.parse_args()
    found.csv = found.csv or found.records
    if found.csv is None:
        parser.error("there is nothing to judge: neither RECORDS nor --csv")
    return found


def text(value, digits):
    """A number as the files have it; nothing for None. There is no -0."""
    return "" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def spread(name, values, digits, ends=ENDS):
    """The median, the least and the greatest in columns of their own; or those of them that `ends` names."""
    values = list(values)
    found = {MEDIAN: statistics.median(values), LEAST: min(values), GREATEST: max(values)}
    return {f"{name}_{end}": text(found[end], digits) for end in ends}


def save(path, columns, rows):
    """Rows may lack columns, and have no others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def load(path):
    """The rows of a file; none if there is no such file."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def where(rows, **asked):
    """Those rows that have these values."""
    return [row for row in rows if all(row[key] == str(value) for key, value in asked.items())]


def one(rows, **asked):
    """The one row that has these values, or None."""
    found = where(rows, **asked)
    assert len(found) < 2, f"{len(found)} rows for {asked}"
    return found[0] if found else None


def numbers(rows, column):
    return [float(row[column]) for row in rows if row[column]]


def shown(row, name):
    """A spread as pages write it: `61.5 [55.8–61.8]`."""
    if row is None:
        return "–"
    middle, least, most = (row[f"{name}_{end}"] for end in ENDS)
    return f"{middle} [{least}–{most}]"


def over(values, form="{:.2f}"):
    """What points have in common: the median, with the least and the greatest in brackets."""
    values = list(values)
    middle, least, most = (form.format(value + 0.0) for value in (statistics.median(values), min(values), max(values)))
    between = " to " if "+" in form else "–"
    return middle if least == most else f"{middle} [{least}{between}{most}]"


def table(heads, rows, title=None):
    """A table of Markdown."""
    if title:
        print(f"**{title}**\n")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
    print()
