"""The page on a port of this machine: started, answered, ended; nothing is asked of the network."""

from __future__ import annotations

__all__ = ["Checked", "ExplorerServer", "check_page"]

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileq_theory.errors import InputError

PAGE = Path(__file__).with_name("page.py")
DEFAULT_PORT = 8717
_LOCAL = ("127.0.0.1", "localhost", "::1")
_FAREWELL_S = 1  # what open pages get to say goodbye in before their connections are cut


@dataclass(frozen=True, slots=True)
class Checked:
    """What one start of the page was seen to do.

    Parameters
    ----------
    url
        Where it was served.
    page_bytes
        Size of the page's HTML.
    start_s, answer_s, move_s
        Seconds until the page was served, for its first answer, and for the answer after one moved slider.
    """

    url: str
    page_bytes: int
    start_s: float
    answer_s: float
    move_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq explore --check --json` prints."""
        return {
            "schema_version": 1,
            "url": self.url,
            "page_bytes": self.page_bytes,
            "start_s": self.start_s,
            "answer_s": self.answer_s,
            "move_s": self.move_s,
        }


class ExplorerServer:
    """The page bound to an address, ready to be run.

    Parameters
    ----------
    host
        Name or address of this machine to listen on.
    port
        From 0 to 65535; 0 takes a free one.

    Raises
    ------
    InputError
        The extra is missing, no such port, a port that is taken or not allowed, a host that is not this machine's.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> None:
        self._application = _application()
        self._socket = _bound(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._server: Any = None

    @property
    def url(self) -> str:
        """Address of the page, for a browser on this machine."""
        name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{f'[{name}]' if ':' in name and name[0] != '[' else name}:{self.port}/"

    @property
    def open_to_others(self) -> bool:
        """Whether other machines can reach the page."""
        return self.host not in _LOCAL

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C, SIGTERM or `stop`; `ready` is called once the page answers."""
        import uvicorn

        settings = uvicorn.Config(
            self._application,
            log_level="error",
            timeout_graceful_shutdown=_FAREWELL_S,
            lifespan="on",
        )
        self._server = uvicorn.Server(settings)
        _call_once_up(self._server, ready)
        with _quiet_signals():
            self._server.run(sockets=[self._socket])
        _close_pages(self._application)

    def stop(self) -> None:
        """End `run` from another thread."""
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        """Give the port back; harmless after `run`."""
        self._socket.close()


def check_page(host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> Checked:
    """Start the page, fetch it once, let its cells answer once and once more after a moved slider, and end it."""
    import threading
    import urllib.request

    begun = time.perf_counter()
    server = ExplorerServer(host, port)  # says first whether the extra is there

    from tileq.explorer.choices import MIXES
    from tileq.explorer.page import app
    from tileq.explorer.view import Memory, show

    up = threading.Event()
    thread = threading.Thread(target=server.run, args=(up.set,), daemon=True)
    thread.start()
    try:
        if not up.wait(60):
            raise InputError("the page was not served within 60 s; try again, or another --port")
        with urllib.request.urlopen(server.url, timeout=60) as answer:
            page = answer.read()
        start_s = time.perf_counter() - begun
    finally:
        server.stop()
        thread.join(30)
        server.close()
    _, cells = app.run()
    answer_s = time.perf_counter() - begun - start_s
    first = next(iter(MIXES))
    settings = cells["choices"].settings_of({**cells["machine"].value, **cells["traffic"].value}, MIXES[first])
    moved = time.perf_counter()
    show(settings.with_(classes=("chat=1536:256", *settings.classes[1:])), Memory())
    return Checked(server.url, len(page), start_s, answer_s, time.perf_counter() - moved)


# ---------------------------------------------------------------------- its parts


def _application() -> Any:
    try:
        import marimo
    except ImportError:
        raise InputError("the explorer needs marimo, which is not installed: pip install 'tileq[explore]'") from None
    return marimo.create_asgi_app(quiet=True, include_code=False).with_app(path="", root=str(PAGE)).build()


def _call_once_up(server: Any, ready: Callable[[], None]) -> None:
    start: Callable[..., Any] = server.startup

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await start(sockets=sockets)
        ready()

    server.startup = startup


def _close_pages(application: Any) -> None:
    """End the threads that answer pages still open: Python would wait for them at its end."""
    for route in getattr(application, "routes", ()):
        manager = getattr(getattr(getattr(route, "app", None), "state", None), "session_manager", None)
        if manager is not None:
            manager.close_all_sessions()


def _bound(host: str, port: int) -> socket.socket:
    """Return a listening socket, or say in one line why there is none."""
    if not 0 <= port <= 65535:
        raise InputError(f"port is {port}; expected a whole number from 0 (any free one) to 65535")
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise InputError(f"host is {host!r}; expected a name or an address of this machine, as 127.0.0.1") from None
    listener = socket.socket(kind, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(_why_not(host, port, error)) from None
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    import errno

    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken; expected a free one: --port 0 takes any"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} is not allowed for this user; expected one of 1024 or above, or 0 for any"
    return f"host is {host!r}; expected a name or an address of this machine, as 127.0.0.1"


class _quiet_signals:  # noqa: N801 (a context, as contextlib's)
    """Take SIGINT and SIGTERM as the end of the page: uvicorn raises them once more after a clean shutdown."""

    def __enter__(self) -> None:
        import signal
        import threading

        self._before = (
            {kind: signal.signal(kind, lambda *_: None) for kind in (signal.SIGINT, signal.SIGTERM)}
            if threading.current_thread() is threading.main_thread()
            else {}
        )

    def __exit__(self, *_: object) -> None:
        import signal

        for kind, handler in self._before.items():
            signal.signal(kind, handler)
