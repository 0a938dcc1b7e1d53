"""Take the explorer's pictures anew in a headless browser, and say how long it took: `python docs/explorer_pictures.py`.

Needs the extra [explore], Chromium and its driver (Debian: `apt-get install chromium chromium-driver`), and Pillow, which
matplotlib brings, to keep the pictures small.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "face" / "browsing"))
from webdriver import Browser  # noqa: E402  (the tests' own)

LARGEST_BYTES = 150_000
SLIDER = """
const e = [...document.querySelectorAll('marimo-slider')].find(e =>
    (e.dataset.label || '').includes(arguments[0]) && e.shadowRoot.querySelector('[role=slider]')?.offsetParent);
e.shadowRoot.querySelector('[role=slider]').focus();
"""


def main() -> None:
    """Serve the page, look at it as on a desktop and on a phone, and end it."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "tileq", "explore", "--port", "0", "--no-browser", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = ""
    while not said.endswith("}\n"):
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the page ended before it was up")
        said += line
    tell("served after", begun)
    try:
        with Browser.found() as browser:
            _take(browser, json.loads(said)["url"])
    finally:
        process.terminate()
        process.wait(30)


def _take(browser: Browser, url: str) -> None:
    def load() -> str:
        return str(browser.run("return document.getElementById('tileq-load')?.innerText || ''"))

    browser.resize(1280, 860)
    begun = time.perf_counter()
    browser.open(url)
    browser.wait(load, within_s=60, what="the first answer")
    tell("first answer after", begun)
    for key in ("right", "right", "left", "left", "left"):
        browser.run(SLIDER, "chat: output")
        before, begun = load(), time.perf_counter()
        browser.press(key)
        browser.wait(lambda before=before: load() != before, within_s=60, what="an answer to a move")
        tell("a move answered after", begun)
    time.sleep(1)  # the handle's bubble fades
    _keep(browser, "explorer.png")
    browser.resize(390, 844)
    time.sleep(1)
    _keep(browser, "explorer-phone.png")


def _keep(browser: Browser, name: str) -> None:
    """Write the picture with a palette of 256 colours, which is half the size and not to be told from it."""
    from PIL import Image

    path = browser.screenshot(ROOT / "docs" / "pictures" / name)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE)
    small.save(path, optimize=True)
    size = path.stat().st_size
    sys.stdout.write(f"{name}: {size:,} bytes\n")
    if size > LARGEST_BYTES:
        raise SystemExit(f"{name} has {size} bytes; expected at most {LARGEST_BYTES}")


def tell(what: str, since: float) -> None:
    """Print a time that was measured."""
    sys.stdout.write(f"{what} {time.perf_counter() - since:.2f} s\n")


if __name__ == "__main__":
    main()
