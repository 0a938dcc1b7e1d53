"""The documentation site builds without a warning and asks nothing of the network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="the site needs the extra [docs]")
    out = tmp_path_factory.mktemp("site")
    strict = ["-W", "--keep-going", "-q", "-d", out / "trees"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *strict, "-b", "html", ROOT / "docs", out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-4000:]
    return out


def test_every_public_module_has_its_section(site: Path) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import reference_pages
    finally:
        sys.path.pop(0)
    pages = "".join(p.read_text(encoding="utf-8") for p in (site / "reference" / "generated").glob("tileq*.html"))
    for package in reference_pages.PACKAGES:
        for module in reference_pages.modules(package):
            assert f'id="module-{module}"' in pages, module


def test_nothing_is_fetched_from_outside(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for tag in re.findall(r"<(?:script|img|link|iframe)\b[^>]*>", text):
            address = re.search(r'(?:src|href)="(https?:)?//', tag)
            assert address is None, f"{page.relative_to(site)}: {tag}"


def test_formulas_are_typeset_without_scripts(site: Path) -> None:
    text = (site / "reference" / "generated" / "theorems.html").read_text(encoding="utf-8")
    assert text.count("<math") > 39
    assert "$$" not in text
    # a condition is a sentence, not the object that checks it
    assert "&lt;function" not in text and "Condition(" not in text
