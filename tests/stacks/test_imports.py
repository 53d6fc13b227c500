"""What stacks need to be imported, and what is said where something is missing."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stacks_load_no_driver_and_no_http_before_they_are_used() -> None:
    code = (
        "import sys\n"
        "import h2ams.stacks.workflow, h2ams.stacks.sqlite_store, h2ams.stacks.postgres_store\n"
        "import h2ams.stacks.transports, h2ams.stacks.folder\n"
        "late = ('psycopg', 'urllib3', 'h2ams.text.extract')\n"
        "print([name for name in late if name in sys.modules])"
    )
    assert run(code) == "[]\n"


def test_a_recall_loads_no_stacks() -> None:
    code = (
        "import sys\n"
        "import h2ams.engine, h2ams.surfaces.cli_read\n"
        "print([name for name in sys.modules if name.startswith('h2ams.stacks')])"
    )
    assert run(code) == "[]\n"


def test_without_the_driver_it_is_said_how_to_get_it() -> None:
    code = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "from h2ams.errors import ConfigError\n"
        "from h2ams.stacks.postgres_store import PostgresWorkflowStore\n"
        "try:\n"
        "    PostgresWorkflowStore('postgresql:///x', 'w')\n"
        "except ConfigError as error:\n"
        "    print(error.hint)"
    )
    assert run(code) == "pip install 'h2ams[postgres]'\n"
