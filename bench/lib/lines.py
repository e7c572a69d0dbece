"""Files of JSON, a value a line, to which a benchmark adds while it runs, and from which it goes on."""

import json
import pathlib
import sys


def kept(path):
    """The values of the file; none if there is no file. Of a last line without its end, what is no value is taken out, so that the next
    line begins anew. A file with another line that is none is left as it is."""
    path = pathlib.Path(path)
    if not path.exists():
        return []
    content = path.read_bytes()
    *whole, last = content.split(b"\n")
    try:
        values = [json.loads(line) for line in whole if line.strip()]
    except ValueError:
        sys.exit(f"{path}: it is no file of this benchmark: not every line is JSON")
    if not last:
        return values
    if not values and not last.startswith(b"{"):
        sys.exit(f"{path}: it is no file of this benchmark")
    with path.open("r+b") as file:
        try:
            values.append(json.loads(last))
            file.seek(0, 2)
            file.write(b"\n")
        except ValueError:
            file.truncate(len(content) - len(last))
    return values
