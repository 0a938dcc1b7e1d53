"""The explorer in a real browser: it loads, a slider moves the region, nothing fails, nothing is fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from webdriver import Browser, BrowserMissing

pytest.importorskip("marimo", reason="marimo is not installed (pip install 'tileq[explore]')")

SLOW_S = 60.0  # a busy machine with cold caches
# the slider whose label starts so, in the page's shadow trees; the sidebar holds each control once more for phones
FIND = """
const wanted = [...document.querySelectorAll('marimo-slider')].filter(e =>
    (e.dataset.label || '').includes(arguments[0]) && e.shadowRoot.querySelector('[role=slider]')?.offsetParent);
const thumb = wanted[0]?.shadowRoot.querySelector('[role=slider]');
if (arguments[1]) thumb.focus();
return thumb ? thumb.getAttribute('aria-valuenow') : null;
"""


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """The address of a page served by the command."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tileq", "explore", "--port", "0", "--no-browser", "--json"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    said = ""
    while not said.endswith("}\n"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        said += line
    yield json.loads(said)["url"]
    process.terminate()
    assert process.wait(30) == 0, "with a page still open the server ends cleanly too"


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A browser, or a skip that says which program is missing."""
    try:
        started = Browser.found(width=1360, height=1000)
    except BrowserMissing as reason:
        pytest.skip(str(reason))
    with started:
        yield started


def text(browser: Browser, key: str) -> Any:
    return browser.run("return document.getElementById(arguments[0])?.innerText", f"tileq-{key}")


def drawing(browser: Browser) -> Any:
    """Return the filled area of the region, its path as drawn."""
    return browser.run("return document.querySelector('#tileq-figure svg path[style*=opacity]')?.getAttribute('d')")


def loaded(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.wait(lambda: text(browser, "load"), within_s=SLOW_S, what="the first answer")
    browser.wait(lambda: browser.run(FIND, "chat: prompt", False), within_s=SLOW_S, what="the controls")


def errors(browser: Browser) -> list[str]:
    return [line for line in browser.read_console() if line.startswith("SEVERE")]


def test_a_slider_moves_the_region_and_nothing_fails(browser: Browser, page: str) -> None:
    loaded(browser, page)
    before = {key: text(browser, key) for key in ("load", "capacity", "commands")}
    area = drawing(browser)
    assert area
    assert "chat=1024:256" in before["commands"]
    assert browser.run(FIND, "chat: prompt", True) is not None
    browser.press("right")
    browser.wait(lambda: text(browser, "load") != before["load"], within_s=SLOW_S, what="an answer to the move")
    assert "chat=1536:256" in text(browser, "commands")
    assert drawing(browser) != area
    assert float(text(browser, "load").rstrip("% !")) > float(before["load"].rstrip("% !")), "longer prompts load more"

    browser.press("left")
    browser.wait(lambda: text(browser, "load") == before["load"], within_s=SLOW_S, what="the way back")
    assert text(browser, "capacity") == before["capacity"]
    assert errors(browser) == []


def test_nothing_is_asked_of_the_network(browser: Browser, page: str) -> None:
    loaded(browser, page)
    here = page.removeprefix("http://").rstrip("/")
    asked = browser.read_requested()
    outside = [a for a in asked if not a.startswith((f"http://{here}/", f"ws://{here}/", "data:", "blob:", "chrome:"))]
    assert len(asked) > 20, "the log of requests was read"
    assert outside == []


@pytest.mark.parametrize("width", [390, 1360])
def test_nothing_is_wider_than_the_window(browser: Browser, page: str, width: int) -> None:
    browser.resize(width, 900)
    browser.open(page)
    browser.wait(lambda: text(browser, "load"), within_s=SLOW_S, what="the first answer")
    assert browser.run("return document.documentElement.scrollWidth") <= width
