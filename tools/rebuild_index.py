"""Make the indexes of memory folders anew and compare them with the files: for cron and CI.

    python tools/rebuild_index.py ROOT...            # rebuild, then verify
    python tools/rebuild_index.py --sync ROOT...     # only by difference, then verify

One line a folder on standard output. Exit code 0: every index equals its files; 1: not, or a folder
could not be opened; 2: wrong call. Nothing in the folders but the index is written; it may run
beside an agent that uses them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from h2ams import H2amsError, Memory


def rebuild(root: str, *, by_difference: bool) -> tuple[bool, str]:
    """Whether the index of ``root`` equals its files afterwards, and a line that says so."""
    with Memory.open(root) as memory:
        report = memory.sync() if by_difference else memory.rebuild()
        found = memory.verify()
        status = memory.status()
    done = "synced" if by_difference else "rebuilt"
    state = "equals the files" if found.ok else "DIFFERS from the files"
    line = (
        f"{status.root}: {done} in {report.elapsed_ms / 1000:.1f} s: {status.scopes} scopes, "
        f"{status.segments} segments, {status.notes} sections of notes; {state}; "
        f"{len(report.errors)} files could not be read"
    )
    return found.ok and not report.errors, line


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("roots", metavar="ROOT", nargs="+", help="a memory folder")
    parser.add_argument("--sync", action="store_true", help="bring up to date, do not start anew")
    args = parser.parse_args(argv)
    good = True
    for root in args.roots:
        try:
            fine, line = rebuild(root, by_difference=args.sync)
        except (H2amsError, OSError) as error:
            fine, line = False, f"{root}: {error}"
        good = good and fine
        print(line, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
