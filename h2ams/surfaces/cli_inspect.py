"""``inspect``: one local page that shows what is remembered, and why a block is what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.errors import H2amsError, UsageError
from h2ams.surfaces.cli_common import DONE, Call, serving_access
from h2ams.surfaces.cli_parser import Command, CommandParser, whole

if TYPE_CHECKING:
    from h2ams.engine import Memory
    from h2ams.memory.access import Access

PORT = 8128
PACKAGES = ("starlette", "uvicorn", "jinja2")


def _configure(parser: CommandParser) -> None:
    parser.option("--owner", action="store_true", help="everything may be seen, without limits")
    parser.option(
        "--write", action="store_true", help="segments may be edited and forgotten on the page"
    )
    parser.option("--port", metavar="N", type=whole, help=f"default {PORT}; 0: any")
    parser.option(
        "--open", action="store_true", help="open the page in the browser, from a terminal only"
    )


def _inspect(call: Call) -> int:
    if call.args.json:
        raise UsageError("inspect has no --json: it serves pages", hint="h2ams status --json")
    access = serving_access(call, "inspect")
    _need_packages()
    with call.open() as memory:
        _serve(call, memory, access)
    return DONE


def _need_packages() -> None:
    """``H2amsError`` where the extra is not installed."""
    from importlib import import_module

    for name in PACKAGES:
        try:
            import_module(name)
        except ImportError as error:
            raise H2amsError(
                f"the inspector needs the package {name} ({error})",
                hint="pip install 'h2ams[inspect]'",
            ) from error


def _serve(call: Call, memory: Memory, access: Access | None) -> None:
    from h2ams.surfaces import loopback
    from h2ams.surfaces.inspect_http import ENTER, application, new_secret
    from h2ams.surfaces.inspect_site import Site
    from h2ams.surfaces.inspect_values import Inspecting, link

    args = call.args
    listener = loopback.listen(PORT if args.port is None else args.port)
    port = listener.getsockname()[1]
    site = Site(Inspecting(memory, access, write=args.write, mark=new_secret()))
    token = new_secret()
    signals = loopback.Signals()
    address = f"http://{loopback.HOST}:{port}{link(ENTER, token=token)}"
    call.output.line(address)
    call.output.flush()
    call.output.note("open this address once; Ctrl-C ends the inspector")
    if args.open:
        _open_browser(call, address)
    app = application(site, token=token, port=port)
    loopback.serve(app, listener, started=signals.started)


def _open_browser(call: Call, address: str) -> None:
    """Show the page, where somebody sits at a terminal who asked for it."""
    if not call.output.stdout.isatty():
        call.output.note("--open: standard output is no terminal, so no browser is opened")
        return
    import webbrowser

    if not webbrowser.open(address):
        call.output.note("--open: no browser was found")


_ABOUT = """
It answers on 127.0.0.1 alone, to the browser that brought the printed address, which works once.
What it shows is fixed by the access flags when it starts. It only reads, unless --write is given.
Needs the extra h2ams[inspect].
"""

COMMANDS = {"inspect": Command(_configure, _inspect, _ABOUT)}
