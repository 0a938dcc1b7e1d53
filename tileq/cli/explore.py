"""`tileq explore`: serve the page, say where, open it."""

from __future__ import annotations

__all__ = ["EXAMPLE", "explore"]

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from tileq.cli import options as o
from tileq.cli.show import show
from tileq.cli.text import facts
from tileq.words import number, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from tileq.explorer.server import ExplorerServer

EXAMPLE = "Example: tileq explore --port 0 --check    (starts, answers once, ends)"

PAGE = Group("Page", sort_key=1)
Host = Annotated[str, o.option("Address to listen on; 0.0.0.0 lets others in.", PAGE)]
Port = Annotated[int, o.option("Port; 0 takes a free one.", PAGE, converter=o.whole)]
Browser = Annotated[
    bool,
    Parameter(
        help="Open a browser, or only serve.",
        group=PAGE,
        name="--browser",
        negative=("--no-browser", "--headless"),
        show_default=False,
    ),
]
Check = Annotated[bool, o.option("Start, answer once, and end.", PAGE, show_default=False)]


def explore(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8717,
    browser: Browser = True,
    check: Check = False,
    json: o.Json = False,
) -> None:
    """Open a page of sliders: GPU, model, traffic, limits; region, tile, flags (needs the extra tileq[explore])."""
    from tileq.explorer import server

    if check:
        document = server.check_page(host, port).to_dict()
        show(document, lambda console: _render(document, console), as_json=json)
        return
    serving = server.ExplorerServer(host, port)
    try:
        serving.run(lambda: _ready(serving, browser=browser, as_json=json))
    finally:
        serving.close()
    if not json:
        sys.stdout.write("\nstopped\n")


def _ready(serving: ExplorerServer, *, browser: bool, as_json: bool) -> None:
    document = {"schema_version": 1, "url": serving.url, "host": serving.host, "port": serving.port}
    show(document, lambda console: _say(serving, console), as_json=as_json)
    sys.stdout.flush()  # who starts the page from a program reads the address from a pipe
    _warm()
    if browser:
        import webbrowser

        webbrowser.open(serving.url)


def _warm() -> None:
    """Answer the page's first question beside the server: the solver compiles once, not before a reader's eyes."""
    import threading

    def first() -> None:
        from tileq.explorer.page import app

        app.run()

    threading.Thread(target=first, daemon=True).start()


def _say(serving: ExplorerServer, console: Console) -> None:
    console.print(f"Tileq explorer: {serving.url}", markup=False, style="bold")
    others = "; other machines can reach it" if serving.open_to_others else ""
    console.print(f"Ctrl-C ends it{others}.", markup=False)


def _render(d: dict[str, Any], console: Console) -> None:
    console.print("Tileq explorer: started, answered, ended", markup=False, style="bold")
    facts(
        console,
        [
            ("served at", d["url"]),
            ("page", f"{number(d['page_bytes'])} bytes after {seconds(d['start_s'])}"),
            ("first answer", f"in {seconds(d['answer_s'])}"),
            ("a moved slider", f"answered in {seconds(d['move_s'])}"),
        ],
    )
