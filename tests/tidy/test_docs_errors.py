"""docs/errors.md names every exception, its place in the tree, code and fields; every code too."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from typing import Never

import pytest

from h2ams import errors
from h2ams.surfaces import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| `([\w-]+)` \| (\d) \| ([^|]+) \| ([^|]*)\|$", re.M)
CODES = re.compile(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|", re.M)
# Callables whose first argument, or ``code``, is the code of a problem or of what is degraded.
MAKERS = {"Problem", "Degraded", "HeaderFault", "_add", "_problem", "_redirect_problem"}
EVERY = {"message", "hint", "path"}


def classes() -> dict[str, type[errors.H2amsError]]:
    found = inspect.getmembers(errors, inspect.isclass)
    return {name: each for name, each in found if issubclass(each, errors.H2amsError)}


def rows() -> dict[str, tuple[str, str, str, str]]:
    return {row[0]: (row[1], row[2], row[3], row[5]) for row in ROW.findall(PAGE)}


def made(kind: type[errors.H2amsError]) -> errors.H2amsError:
    """An error of this kind, without asking how it is made."""
    error = kind.__new__(kind)
    errors.H2amsError.__init__(error, "message")
    return error


def codes_in(section: str) -> set[str]:
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return {code for row in CODES.findall(text) for code in re.findall(r"`([^`]+)`", row)}


def sources() -> list[ast.Module]:
    paths = sorted((ROOT / "h2ams").rglob("*.py"))
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def name_of(call: ast.Call) -> str:
    target = call.func
    return target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")


def literal_codes(names: set[str]) -> set[str]:
    """Codes that the package gives literally to one of the callables ``names``."""
    found = set()
    for call in (n for tree in sources() for n in ast.walk(tree) if isinstance(n, ast.Call)):
        if name_of(call) in names:
            given = [*call.args, *(key.value for key in call.keywords if key.arg == "code")]
            texts = [each.value for each in given if isinstance(each, ast.Constant)][:1]
            found |= {text for text in texts if re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", str(text))}
    return found


def test_every_exception_stands_on_the_page_and_no_other() -> None:
    assert set(rows()) == set(classes())


@pytest.mark.parametrize("kind", classes().values(), ids=lambda kind: kind.__name__)
def test_each_exception_has_its_base_its_code_and_its_exit_code(
    kind: type[errors.H2amsError], capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object, **__: object) -> Never:
        raise made(kind)

    exits = cli.main(["status", "--json"], opener=failing)
    code = json.loads(capsys.readouterr().out)["error"]["code"]
    assert rows()[kind.__name__][:3] == (kind.__bases__[0].__name__, code, str(exits))


def test_each_exception_has_its_fields_on_the_page() -> None:
    for name, kind in classes().items():
        if "__init__" in vars(kind) and kind is not errors.H2amsError:
            own = set(inspect.signature(kind.__init__).parameters) - {"self", *EVERY}
            assert own <= set(re.findall(r"`(\w+)`", rows()[name][3])), name


def test_every_failure_of_a_model_is_named() -> None:
    named = set(re.findall(r"`([\w-]+)`", PAGE.split("`failure` of a", 1)[1].split("\n\n", 1)[0]))
    assert set(errors.Failure.__args__) <= named  # type: ignore[attr-defined]


def test_every_code_that_the_package_makes_is_explained() -> None:
    explained = codes_in("Problems") | codes_in("Degraded")
    made_here = literal_codes(MAKERS)
    assert len(made_here) > 30
    assert made_here - explained == set()
    assert literal_codes({"Degraded"}) - codes_in("Degraded") == set()


def test_no_code_is_explained_that_the_package_does_not_know() -> None:
    texts = [n.value for t in sources() for n in ast.walk(t) if isinstance(n, ast.Constant)]
    known = {str(text).partition(":")[0] for text in texts if isinstance(text, str)}
    assert (codes_in("Problems") | codes_in("Degraded")) - known == set()
