"""Look for problems in memory folders without changing anything: a gate for CI and commit hooks.

    python tools/check_memory.py ROOT...
    python tools/check_memory.py --state /tmp/state ROOT   # keep even the index out of the folder

Prints ``path:line: code: message`` for every problem. Exit code 0: none; 1: some, or a folder could
not be opened; 2: wrong call. Notices (text without a header, an unknown key) are no problems.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from h2ams import H2amsError, Memory


def problems(root: str, state: str | None) -> list[str]:
    """The problems of one folder, one line each."""
    with Memory.open(root, state=state) as memory:
        report = memory.doctor()
        found = memory.verify()
    lines = [
        f"{os.path.join(root, each.path)}:{each.line}: {each.code}: {each.message}"
        for each in report.problems
        if not each.notice
    ]
    return lines if found.ok else [*lines, f"{root}:0: index: it differs from the files"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("roots", metavar="ROOT", nargs="+", help="a memory folder")
    parser.add_argument("--state", metavar="DIR", help="where to keep the indexes, one folder each")
    args = parser.parse_args(argv)
    count = 0
    for number, root in enumerate(args.roots):
        state = None if args.state is None else os.path.join(args.state, str(number))
        try:
            lines = problems(root, state)
        except (H2amsError, OSError) as error:
            lines = [f"{root}:0: error: {error}"]
        count += len(lines)
        for line in lines:
            print(line, flush=True)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
