"""Pictures of points, as SVG documents in the manner of crates/report/src/pictures: the same size, colours and style sheet for dark paper."""

import html
import math

INK, FAINT, PAPER = "#1D2330", "#D5D9E2", "#FFFFFF"
COLOURS = ("#0072B2", "#C98200", "#009E73", "#CC79A7")
LEVEL = "#D55E00"
DARK = {INK: "#E6E9F0", FAINT: "#3A4150", PAPER: "#14181F"}
WIDTH, MARGIN, LINE, TEXT, TITLE = 640, 12, 21, 15, 17
LEFT = 78


class Axis:
    """A range of values; `labels` has what stands at which value, `name` the quantity with its unit."""

    def __init__(self, name, low, high, labels, log=False, grid=True):
        self.name, self.log, self.grid = name, log, grid
        self.low, self.high = (math.log10(end) if log else end for end in (low, high))
        self.labels = labels if isinstance(labels, dict) else {value: f"{value:,}" for value in labels}

    def part(self, value):
        return ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)


class Panel:
    """A plot. `across` and `up` are its axes; what it shows is added in order. Series are counted from 0."""

    def __init__(self, across, up, height=280, title=None, below=()):
        self.across, self.up, self.height, self.title = across, up, height, title
        # Further lines under the axis: lists of (value, text).
        self.below = below
        self.items = []

    def line(self, series, points):
        self.items.append(("line", series, list(points)))

    def dots(self, series, points):
        self.items.append(("dots", series, list(points)))

    def level(self, points):
        """A bound or a published figure."""
        self.items.append(("level", None, list(points)))

    def rule(self, value):
        """A line from the axis to the top."""
        self.items.append(("rule", None, value))


def words(x, y, what, anchor="start", size=TEXT, more=""):
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-family="sans-serif" font-size="{size}"'
    return f'<text {place} fill="{INK}"{more}>{html.escape(what)}</text>'


def mark(series, x, y):
    """Series differ in shape too."""
    rim = f'fill="{COLOURS[series]}" stroke="{PAPER}" stroke-width="1"'
    if series == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {rim}/>'
    corners = {1: [(-5, -5), (5, -5), (5, 5), (-5, 5)], 2: [(0, -6), (6, 5), (-6, 5)], 3: [(0, -7), (7, 0), (0, 7), (-7, 0)]}[series]
    return f'<polygon points="{" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)}" {rim}/>'


def drawn(panel, top):
    """A panel whose plot begins at `top`."""
    right, bottom = WIDTH - MARGIN - 6, top + panel.height
    x = lambda value: LEFT + panel.across.part(value) * (right - LEFT)
    y = lambda value: bottom - panel.up.part(value) * panel.height
    path = lambda points: " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    if panel.title:
        yield words(LEFT, top - 9, panel.title)
    for value, label in panel.up.labels.items():
        yield f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}" stroke="{FAINT}" stroke-width="1"/>'
        yield words(LEFT - 9, y(value) + 5, label, "end")
    for value, label in panel.across.labels.items():
        if panel.across.grid:
            yield f'<line x1="{x(value):.1f}" y1="{bottom}" x2="{x(value):.1f}" y2="{top}" stroke="{FAINT}" stroke-width="1"/>'
        yield words(x(value), bottom + LINE, label, "middle")
    for number, labels in enumerate(panel.below, 2):
        for value, label in labels:
            yield words(x(value), bottom + LINE * number, label, "middle")
    if panel.across.name:
        yield words((LEFT + right) / 2, bottom + LINE * (2 + len(panel.below)), panel.across.name, "middle")
    middle = (top + bottom) / 2
    yield words(MARGIN + 9, middle, panel.up.name, "middle", more=f' transform="rotate(270, {MARGIN + 9}, {middle:.1f})"')
    for kind, series, points in panel.items:
        if kind == "rule":
            yield f'<line x1="{x(points):.1f}" y1="{bottom}" x2="{x(points):.1f}" y2="{top}" stroke="{FAINT}" stroke-width="1"/>'
        elif kind == "line":
            yield f'<polyline fill="none" stroke="{COLOURS[series]}" stroke-width="2" points="{path(points)}"/>'
        elif kind == "level":
            yield f'<polyline fill="none" stroke="{LEVEL}" stroke-width="2" stroke-dasharray="6 4" points="{path(points)}"/>'
        else:
            yield from (mark(series, x(a), y(b)) for a, b in points)


def svg(title, legend, *panels):
    """A picture: `legend` has the names of the series in order, and then that of the level, if there is one, after a dash."""
    entries, x, row = [], MARGIN, 0
    for number, name in enumerate(legend):
        width = 20 + 21 + len(name) * TEXT * 0.56
        if x + width > WIDTH and x > MARGIN:
            x, row = MARGIN, row + 1
        entries.append((x, row, number, name))
        x += width
    top = MARGIN + 28
    content = [words(MARGIN, MARGIN + 14, title, size=TITLE)]
    for x, line, number, name in entries:
        y = top + LINE * line + 10
        if name.startswith("— "):
            name = name[2:]
            content.append(f'<line x1="{x}" y1="{y}" x2="{x + 20}" y2="{y}" stroke="{LEVEL}" stroke-width="3"/>')
        else:
            content.append(mark(number, x + 10, y))
        content.append(words(x + 27, y + 5, name))
    top += LINE * (row + 1) + 10
    for panel in panels:
        top += LINE if panel.title else 0
        content += drawn(panel, top)
        top += panel.height + LINE * (1 + len(panel.below) + bool(panel.across.name)) + 10
    height = int(top + MARGIN - 6)
    rules = "".join(
        f'{"rect" if light == PAPER else ""}[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}' for light, dark in DARK.items()
    )
    head = f'<svg role="img" aria-label="{html.escape(title)}" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
    paper = f'<rect x="0" y="0" width="{WIDTH}" height="{height}" fill="{PAPER}"/>'
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    return "\n".join([head + 'xmlns="http://www.w3.org/2000/svg">', style, paper, *content, "</svg>"]) + "\n"
