"""What is published: sdist and wheel as built, and what a person has after installing them.

``make test-package`` runs this; it is left out of the default suite, since it installs packages.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from package.distribution import (
    ROOT,
    STRAY,
    Built,
    Environment,
    build,
    copy_of_the_checkout,
    extras_for_users,
    install,
    succeed,
    tracked,
)
from package.extras import MISSING, PROBES

pytestmark = pytest.mark.package

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOST_DISTRIBUTIONS = 20  # of an installation without extras, h2ams itself among them


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built from the checkout as it lies there."""
    return build(ROOT, tmp_path_factory.mktemp("built") / "out")


@pytest.fixture(scope="module")
def core(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A clean environment with the wheel and nothing more than it asks for."""
    return install(str(built.wheel), tmp_path_factory.mktemp("core") / "env")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with nothing in it, away from the checkout."""
    assert ROOT not in tmp_path.parents
    return tmp_path


# -- the archives ----------------------------------------------------------------------------------


def test_both_archives_pass_the_check_of_the_index(built: Built) -> None:
    words = [sys.executable, "-m", "twine", "--no-color", "check", "--strict"]
    told = succeed([*words, str(built.sdist), str(built.wheel)], cwd=built.wheel.parent)
    assert told.count("PASSED") == 2, told


def test_the_sdist_holds_what_the_project_consists_of_and_nothing_else(built: Built) -> None:
    assert built.sdist_names() - {"PKG-INFO"} == tracked()


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    package = {name for name in tracked() if name.startswith("h2ams/")}
    names = built.wheel_names()
    info = {name for name in names if ".dist-info/" in name}
    assert names - info == package
    assert {name.partition("/")[2] for name in info} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }
    assert not [name for name in names if "test" in name.split("/")[0:-1]]


def test_licence_type_marker_and_data_are_in_the_wheel(built: Built) -> None:
    names = built.wheel_names()
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert built.wheel_text("licenses/LICENSE") == licence
    assert "h2ams/py.typed" in names
    data = {name for name in tracked() if name.startswith("h2ams/") and not name.endswith(".py")}
    assert {"h2ams/dream/prompts/extract.md", "h2ams/py.typed"} <= data <= names


def test_the_record_of_the_wheel_is_true(built: Built) -> None:
    rows = list(csv.reader(io.StringIO(built.wheel_text("RECORD"))))
    with zipfile.ZipFile(built.wheel) as archive:
        for name, digest, size in rows:
            if name.endswith("/RECORD"):
                continue
            data = archive.read(name)
            sha = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={sha}", len(data)), name
    assert {name for name, *_ in rows} == built.wheel_names()


def test_the_metadata_say_what_the_project_file_says(built: Built) -> None:
    metadata = built.metadata()
    assert metadata["Name"] == PROJECT["name"] and metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "MIT"
    assert set(built.extras()) >= {"anthropic", "mcp", "postgres", "semantic"}
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_second_build_from_an_untidy_copy_gives_the_same_bytes(
    built: Built, tmp_path: Path
) -> None:
    untidy = copy_of_the_checkout(tmp_path / "untidy", stray=STRAY)
    again = build(untidy, tmp_path / "again")
    assert again.sdist.name == built.sdist.name and again.wheel.name == built.wheel.name
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    assert again.wheel.read_bytes() == built.wheel.read_bytes()


def test_the_tests_run_from_the_unpacked_sdist(built: Built, tmp_path: Path) -> None:
    """All of them are found there, and those pass that read pages, sources and the folder."""
    folder = built.unpack_sdist(tmp_path)
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    found = re.search(r"(\d+) tests collected", succeed([*pytest_, "--co"], cwd=folder))
    assert found is not None and int(found[1]) > 1_000
    readers = ["architecture", "python", "settings"]
    quick = [f"tests/tidy/test_docs_{name}.py" for name in readers]
    quick += ["tests/tidy/test_scopes.py", "tests/surfaces/test_cli_docs.py"]
    told = succeed([*pytest_, *quick], cwd=folder)
    assert re.search(r"^\d+ passed", told, re.MULTILINE) and "skipped" not in told, told


# -- what is installed -----------------------------------------------------------------------------


def test_an_installation_without_extras_stays_small(core: Environment) -> None:
    found = core.distributions()
    print("\n".join(f"{name} {version}" for name, version in found.items()))
    assert len(found) <= MOST_DISTRIBUTIONS, sorted(found)
    assert {"h2ams", "apsw", "tiktoken"} <= found.keys()


def test_the_main_job_works_away_from_the_checkout(core: Environment, work: Path) -> None:
    main_job(core, work)


def test_the_sdist_installs_to_the_same_package(built: Built, work: Path) -> None:
    made = install(str(built.sdist), work / "env")
    (work / "home").mkdir()
    main_job(made, work / "home")
    packages = made.folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    with zipfile.ZipFile(built.wheel) as archive:
        for name in built.wheel_names():
            if name.startswith("h2ams/"):
                assert (packages / name).read_bytes() == archive.read(name), name


def main_job(made: Environment, home: Path) -> None:
    """init, remember, a file written by hand, sync, recall, context, verify."""

    def h2ams(*words: str, code: int = 0) -> str:
        done = made.run(*words, cwd=home)
        assert (done.returncode, done.stderr) == (code, ""), (words, done.stdout, done.stderr)
        return done.stdout

    where = made.run("-c", "import h2ams; print(h2ams.__file__)", cwd=home, python=True).stdout
    assert Path(where.strip()).is_relative_to(made.folder)
    assert h2ams("--version") == f"h2ams {PROJECT['version']}\n"
    assert h2ams("init", "notes").startswith("created ")
    notes = ("--root", "notes")
    address = h2ams("remember", "user", "Prefers tabs over spaces.", "--kind", "preference", *notes)
    assert re.fullmatch(r"user#seg_[0-9a-f]{16}\n", address)
    (home / "notes" / "garden.md").write_text("# Garden\n\nTomatoes after the frost.\n", "utf-8")
    synced = json.loads(h2ams("sync", "--json", *notes))
    assert synced["added"] == 1 and synced["errors"] == []
    found = json.loads(h2ams("recall", "tabs or spaces?", "--json", *notes))
    assert [hit["address"] for hit in found["hits"]] == [address.strip()]
    assert "garden.md:1" in h2ams("recall", "frost", *notes)
    block = json.loads(h2ams("context", "tabs or spaces?", "--budget", "300", "--json", *notes))
    assert "Prefers tabs over spaces." in block["text"] and 0 < block["tokens"] <= 300
    verified = json.loads(h2ams("verify", "--json", *notes))
    assert verified["ok"] and verified["digest"] == verified["rebuild_digest"]


# -- the extras ------------------------------------------------------------------------------------


def test_every_extra_of_the_metadata_has_a_probe(built: Built) -> None:
    assert set(built.extras()) <= PROBES.keys() == MISSING.keys()


def test_without_an_extra_whoever_needs_it_says_which_to_install(
    built: Built, core: Environment, work: Path
) -> None:
    assert core.run("init", "notes", cwd=work).returncode == 0
    assert core.run("remember", "user", "One.", "--root", "notes", cwd=work).returncode == 0
    for extra in built.extras():
        for asked in MISSING[extra]:
            done = core.run(*asked.words, cwd=work, python=asked.python)
            told = (extra, asked, done.stdout, done.stderr)
            assert done.returncode == asked.code, told
            assert f"pip install 'h2ams[{extra}]'" in done.stderr, told
            assert len(done.stderr.splitlines()) == 1, told


@pytest.mark.parametrize("extra", extras_for_users(PROJECT["optional-dependencies"]))
def test_an_extra_of_the_wheel_brings_what_its_command_needs(
    extra: str, built: Built, work: Path, postgres_server: str
) -> None:
    made = install(f"{built.wheel}[{extra}]", work / "env")
    print("\n".join(f"{name} {version}" for name, version in made.distributions().items()))
    home = work / "home"
    home.mkdir()
    assert made.run("init", "notes", cwd=home).returncode == 0
    text = "The automobile is parked in the garage."
    assert made.run("remember", "user", text, "--root", "notes", cwd=home).returncode == 0
    PROBES[extra](made, home, postgres_server)
