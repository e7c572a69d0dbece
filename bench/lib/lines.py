"""Files of JSON, a value a line, to which a benchmark adds while it runs, and from which it goes on."""

import json
import pathlib


def kept(path):
    """The values of the file; none if there is no file. A last line that was not written whole is taken out, so that the next begins anew."""
    path = pathlib.Path(path)
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]
