"""Bring the pages of the documentation site together, build it, and check what was built.

    python tools/make_site.py

Pages are those of docs/ as they are in the repository, the pages at the root (README, SECURITY, …)
below ``project/``, and the Python API below ``api/``, one page a module, made from docstrings.
Links are written for the repository; here they are turned where a page lies elsewhere on the site.
The result is in build/site and needs no server and no network.
"""

from __future__ import annotations

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
# A block of code, a link, or code in a line: whichever begins first.
_PIECE = re.compile(
    r"^```.*?^```$|\[(?P<text>(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\((?P<path>[^)\s]+)\)|`[^`\n]+`",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def main() -> int:
    stage(ROOT, ROOT / STAGED)
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
        source = f"docs/{api.place}"
        page = target / api.place
        page.parent.mkdir(parents=True, exist_ok=True)
        text = turned(site_api.text_of(root, api), source, {**where, source: api.place}, root)
        page.write_text(text, encoding="utf-8")


def turned(text: str, source: str, where: Mapping[str, str], root: Path) -> str:
    """``text`` of the page ``source`` with its links as the staged pages lie to each other.

    A link to a folder leads to its README; what is to be found in the repository only becomes the
    plain text of its link. A link that only names a file gets the title of its page. Code is left
    alone, and what leads nowhere stays, to be reported.
    """

    def link(found: re.Match[str]) -> str:
        if found["path"] is None:
            return found[0]
        path, hash_, anchor = found["path"].partition("#")
        if not path or ":" in path:
            return found[0]
        meant = os.path.normpath(PurePosixPath(source).parent / path)
        page = meant if meant in where else f"{meant}/README.md"
        if page not in where:
            return found["text"] if (root / meant).exists() else found[0]
        said = title(root / page) if found["text"].endswith((".md", "/")) else found["text"]
        start = PurePosixPath(where[source]).parent
        return f"[{said}]({os.path.relpath(where[page], start)}{hash_}{anchor})"

    return _PIECE.sub(link, text)


def title(page: Path) -> str:
    """The first heading of a page."""
    found = _TITLE.search(page.read_text(encoding="utf-8"))
    return found[1] if found else page.name


if __name__ == "__main__":
    sys.exit(main())
