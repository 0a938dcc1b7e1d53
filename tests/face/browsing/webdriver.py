"""A browser driven over the W3C WebDriver protocol: what the tests of a page need of it, with nothing installed for it.

`Browser.found()` starts Chromium under its driver (Debian's packages `chromium` and `chromium-driver`), or says what is
missing. Console messages and requests come from Chromium's own logs.
"""

from __future__ import annotations

__all__ = ["Browser", "BrowserMissing"]

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

START_S = 30.0
_KEYS = {"right": "\ue014", "left": "\ue012", "home": "\ue011", "end": "\ue010"}


class BrowserMissing(Exception):  # noqa: N818 (a reason to skip, not a fault)
    """No browser here; the message says which program was looked for."""


@dataclass(slots=True)
class Browser:
    """One headless window of Chromium.

    Parameters
    ----------
    driver
        The running driver.
    base
        Its address.
    session
        The session's path at the driver.
    console, requested
        Messages of the page's console ("SEVERE ..."), addresses it asked for; both grow as the page lives.
    """

    driver: subprocess.Popen[bytes]
    base: str
    session: str
    console: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    @classmethod
    def found(cls, *, width: int = 1280, height: int = 900, dark: bool = False) -> Browser:
        """Start a browser, or raise `BrowserMissing`."""
        chromium = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
        driver = shutil.which("chromedriver")
        if chromium is None or driver is None:
            raise BrowserMissing(
                f"no headless browser: {'chromedriver' if chromium else 'chromium'} is not installed "
                "(Debian: apt-get install chromium chromium-driver)"
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
        )
        flags = [
            "--headless=new",
            "--no-sandbox",  # the tests of a container run as root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--disable-background-networking",  # the browser's own calls home are not the page's
            "--no-first-run",
            f"--window-size={width},{height}",
            *(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []),
        ]
        asked = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": flags},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        browser = cls(process, f"http://127.0.0.1:{port}", "")
        try:
            browser._until_ready()
            answer = browser._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        except BaseException:
            process.kill()
            process.wait()
            raise
        browser.session = f"/session/{answer['sessionId']}"
        return browser

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the window and its driver."""
        try:
            self._call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait(10)

    def open(self, address: str) -> None:
        """Load a page and wait for its `load` event."""
        self._in_session("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what JavaScript returns; `arguments` are the script's `arguments`."""
        return self._in_session("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: Callable[[], Any], *, within_s: float, what: str) -> Any:
        """Return the first true value of `condition`; fail with `what` was waited for."""
        end = time.monotonic() + within_s
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {within_s:g} s; console: {self.read_console()}")
            time.sleep(0.05)

    def press(self, key: str, times: int = 1) -> None:
        """Press and release a key in whatever has the focus."""
        strokes = [{"type": kind, "value": _KEYS[key]} for _ in range(times) for kind in ("keyDown", "keyUp")]
        self._in_session("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def resize(self, width: int, height: int) -> None:
        """Give the page that many CSS pixels, as a phone or a desktop would."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """Tell the page that its reader prefers "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", {"features": [feature]})

    def devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        """Call one command of Chromium's developer tools."""
        return self._in_session("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path: Path) -> Path:
        """Write a PNG of what the window shows."""
        path.write_bytes(base64.b64decode(self._in_session("GET", "/screenshot")))
        return path

    def read_console(self) -> list[str]:
        """Return all console messages so far, each with its level first."""
        entries = self._in_session("POST", "/se/log", {"type": "browser"})
        self.console += [f"{entry['level']} {entry['message']}" for entry in entries]
        return self.console

    def read_requested(self) -> list[str]:
        """Return the addresses that the page has asked for so far."""
        for entry in self._in_session("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
            elif message["method"] == "Network.webSocketCreated":
                self.requested.append(message["params"]["url"])
        return self.requested

    def _in_session(self, method: str, path: str, body: Any = None) -> Any:
        return self._call(method, f"{self.session}{path}", body)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            f"{self.base}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:500]}") from None

    def _until_ready(self) -> None:
        end = time.monotonic() + START_S
        while True:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                raise BrowserMissing(f"chromedriver did not answer within {START_S:g} s")
            time.sleep(0.05)
