"""Bring the pages of the documentation site together, build it, and check what was built.

    python tools/make_site.py [--stage-only]

Pages are those of docs/ as they are in the repository, the pages at the root (README, SECURITY, …)
below ``project/``, and the Python API below ``api/``, one page a module, made from docstrings.
Links are written for the repository; here they are turned where a page lies elsewhere on the site.
The result is in build/site and needs no server and no network.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import check_site
import site_api

ROOT = Path(__file__).resolve().parent.parent
STAGED = Path("build") / "site-pages"
BUILT = Path("build") / "site"
AT_ROOT = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage-only", action="store_true", help="do not build")
    options = parser.parse_args()
    stage(ROOT, ROOT / STAGED)
    if options.stage_only:
        return 0
    shutil.rmtree(ROOT / BUILT, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        return 1
    return check_site.main([str(ROOT / BUILT), *site_api.anchors(ROOT)])


def places(root: Path) -> dict[str, str]:
    """Where each file of the repository lies among the staged pages: path to path, both posix."""
    docs = root / "docs"
    found = {
        path.relative_to(root).as_posix(): path.relative_to(docs).as_posix()
        for path in sorted(docs.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return found | {name: f"project/{name.lower()}" for name in AT_ROOT}


def stage(root: Path, target: Path) -> None:
    """Write all pages below ``target``, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    where = places(root)
    for source, place in where.items():
        page = target / place
        page.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text = (root / source).read_text(encoding="utf-8")
            page.write_text(turned(text, source, where, root), encoding="utf-8")
        else:
            shutil.copyfile(root / source, page)

    for api in site_api.PAGES:
        page = target / api.place
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(site_api.text_of(root, api), encoding="utf-8")


def turned(text: str, source: str, where: Mapping[str, str], root: Path) -> str:
    """``text`` of the page ``source`` with its links as the staged pages lie to each other.

    A link to a folder leads to its README; what is to be found in the repository only becomes the
    plain text of its link. Blocks of code are left alone. What leads nowhere stays, to be reported.
    """

    def link(found: re.Match[str]) -> str:
        path, hash_, anchor = found[2].partition("#")
        if not path or ":" in path:
            return found[0]
        meant = os.path.normpath(PurePosixPath(source).parent / path)
        place = where.get(meant) or where.get(f"{meant}/README.md")
        if place is None:
            return found[1] if (root / meant).exists() else found[0]
        start = PurePosixPath(where[source]).parent
        return f"[{found[1]}]({os.path.relpath(place, start)}{hash_}{anchor})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


if __name__ == "__main__":
    sys.exit(main())
