"""The built package for tests: made once, looked into, installed into clean environments.

What is tested is what a person gets: nothing here imports ``h2ams`` from the checkout, and the
programs run away from it, with an environment that says nothing of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EPOCH = "1767225600"  # the time that files in a reproducible archive carry: any will do
DEADLINE_S = 300.0
STRAY = {  # what lies about in a checkout that was worked in, and must not be packed
    "notes.txt": "mine",
    ".env": "KEY=secret",
    "h2ams/__pycache__/engine.cpython-311.pyc": "old",
    "scopes/.h2ams/index.db": "derived",
    ".venv/lib/module.py": "installed",
    "build/lib/h2ams/old.py": "built before",
    "dist/h2ams-0.0.1.tar.gz": "built before",
}


@dataclass(frozen=True, slots=True)
class Built:
    """One sdist and one wheel."""

    sdist: Path
    wheel: Path

    def sdist_names(self) -> set[str]:
        """The files of the sdist, without the folder that it unpacks into."""
        with tarfile.open(self.sdist) as archive:
            return {each.name.partition("/")[2] for each in archive if each.isfile()}

    def unpack_sdist(self, where: Path) -> Path:
        """The folder that the sdist unpacks into."""
        with tarfile.open(self.sdist) as archive:
            archive.extractall(where, filter="data")
        (folder,) = where.iterdir()
        return folder

    def wheel_names(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    def wheel_text(self, name: str) -> str:
        """The text of the file ``name`` of the wheel's ``.dist-info`` folder."""
        with zipfile.ZipFile(self.wheel) as archive:
            (path,) = [each for each in archive.namelist() if each.endswith(f".dist-info/{name}")]
            return archive.read(path).decode("utf-8")

    def metadata(self) -> Message:
        return Parser().parsestr(self.wheel_text("METADATA"))

    def extras(self) -> list[str]:
        return extras_for_users(self.metadata().get_all("Provides-Extra", []))


def extras_for_users(every: Iterable[object]) -> list[str]:
    """Those of the extras that are not for working on the project itself."""
    return sorted(str(each) for each in every if each not in ("dev", "docs", "llm-test"))


def tracked() -> set[str]:
    """The files of the checkout that belong to the project, as ``git`` knows them."""
    done = succeed(["git", "ls-files", "-z"], cwd=ROOT)
    return {name for name in done.split("\0") if name and (ROOT / name).is_file()}


def copy_of_the_checkout(where: Path, *, stray: Mapping[str, str]) -> Path:
    """The tracked files again, younger than the checkout's, with ``stray`` files among them."""
    for name in tracked():
        target = where / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)  # with its mode: the archive has it too
    for name, text in stray.items():
        target = where / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return where


def build(source: Path, out: Path) -> Built:
    """``python -m build``: the sdist of ``source``, and the wheel from that sdist."""
    words = [sys.executable, "-m", "build", "--outdir", str(out), str(source)]
    succeed(words, cwd=out.parent, env=surroundings(out.parent, SOURCE_DATE_EPOCH=EPOCH))
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel)


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with nothing in it but what was installed into it, not even pip."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def program(self) -> str:
        """The command ``h2ams`` as it was installed."""
        return str(self.folder / "bin" / "h2ams")

    def distributions(self) -> dict[str, str]:
        """Name and version of every installed distribution."""
        code = (
            "from importlib.metadata import distributions\n"
            "for d in distributions(): print(d.metadata['Name'], d.version)"
        )
        lines = succeed([self.python, "-c", code], cwd=self.folder).splitlines()
        return dict(
            sorted((tuple(line.split()) for line in lines), key=lambda each: each[0].lower())
        )

    def run(
        self, *words: str, cwd: Path, stdin: str = "", python: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run ``h2ams words…``, or with ``python`` the interpreter, as a person would."""
        return subprocess.run(
            [self.python if python else self.program, *words],
            cwd=cwd,
            env=surroundings(cwd),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=DEADLINE_S,
            check=False,
        )


def install(what: str, folder: Path) -> Environment:
    """A clean environment in ``folder`` with ``what`` in it: a path, perhaps with ``[extras]``."""
    home = folder.parent
    succeed([sys.executable, "-m", "venv", "--without-pip", str(folder)], cwd=home)
    made = Environment(folder)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        made.python,
        "install",
        "--quiet",
        "--no-compile",
    ]
    succeed([*pip, "--disable-pip-version-check", what], cwd=home, env=surroundings(home))
    return made


def surroundings(home: Path, **more: str) -> dict[str, str]:
    """The environment of a program: this one's without a word of the checkout or of h2ams."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("H2AMS_", "PYTHON", "PYTEST", "VIRTUAL_ENV", "XDG_"))
    }
    return kept | {"H2AMS_NOW": "2026-12-01T12:00:00Z", "XDG_DATA_HOME": str(home / "data")} | more


def succeed(words: list[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout
