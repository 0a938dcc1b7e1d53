"""Every item at smoke size: it runs, judges with reasons, draws the same bytes, and repeats its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paper_repro.framework.item import Data
from paper_repro.framework.report import report_text
from paper_repro.framework.run import ItemResult, reproduce
from paper_repro.registry import item, item_names
from tileq.plain import plain

RESULTS = Path(__file__).resolve().parents[2] / "paper_repro" / "results"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


def smoke(name: str, folder: Path, **asked: Any) -> ItemResult:
    return reproduce([name], smoke=True, folder=folder, jobs=1, progress=False, **asked).items[0]


@pytest.mark.parametrize("name", item_names())
def test_an_item_at_smoke_size(name: str, folder: Path) -> None:
    found = smoke(name, folder)
    assert found.rows, "an item without a row says nothing"
    for row in found.rows:
        assert row.quantity and row.published and row.ours
        assert row.verdict == "reproduced" or row.reason, f"{row.quantity}: unexplained"
    first = found.figure.read_bytes()
    assert smoke(name, folder, redraw=True).figure.read_bytes() == first
    assert len(first) < 400_000, "figures are committed: thin the lines"
    # numbers repeat: one piece again, from nothing
    data = found.data
    again = item(name).compute(data.settings, data.pieces[-1], data.seed)
    assert json.dumps(plain(again)) == json.dumps(data.results[-1])


# printed digits that do not follow from what is printed beside them; each row says why
MISPRINTED = {"mean wait at n_max 3000", "mixed, 2:1 then 1:2", "eight GPUs, 1:1"}


@pytest.mark.parametrize("name", item_names())
def test_numbers_without_chance_come_out_at_any_size(name: str, folder: Path) -> None:
    """The ground truth: whatever is held to printed digits rounds to them, at smoke size too."""
    for row in smoke(name, folder).rows:
        if row.value is not None and row.low is None:
            assert (row.verdict == "reproduced") == (row.quantity not in MISPRINTED), row


@pytest.mark.parametrize("name", ["dai-traces", "dai-slots", "wait-fluid", "rad-staircase", "gate-and-route"])
def test_deterministic_experiments_come_out_at_smoke_size(name: str, folder: Path) -> None:
    verdicts = {row.verdict for row in smoke(name, folder).rows}
    assert "not reproduced" not in verdicts


def test_items_say_what_they_are() -> None:
    assert len(item_names()) == len(set(item_names()))
    for name in item_names():
        found = item(name)
        assert found.paper and found.where and found.claim.endswith(".") and found.simulated.endswith(".")
        assert json.loads(json.dumps(plain(found.smoke))) == found.smoke
        assert json.loads(json.dumps(plain(found.full))) == found.full


def committed() -> list[tuple[str, Data]]:
    from paper_repro.framework.store import Store

    found = [(name, Store(RESULTS).read(name)) for name in item_names()]
    return [(name, data) for name, data in found if data is not None]


@pytest.mark.skipif(not RESULTS.is_dir(), reason="no committed results")
def test_the_committed_report_is_written_from_the_committed_data() -> None:
    """No number in it is typed by hand: the data give the very text."""
    results = []
    for name, data in committed():
        found = item(name)
        results.append(ItemResult(found, data, tuple(found.rows(data)), RESULTS / f"{name}.svg"))
        assert data.size == "full" and (RESULTS / f"{name}.svg").is_file()
        assert all(row.verdict == "reproduced" or row.reason for row in results[-1].rows), name
    assert report_text(results) == (RESULTS / "REPORT.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not RESULTS.is_dir(), reason="no committed results")
def test_every_item_has_committed_results_and_nothing_else_lies_there() -> None:
    known = {f"{name}.{kind}" for name in item_names() for kind in ("json", "svg")} | {"REPORT.md"}
    assert {path.name for path in RESULTS.iterdir()} == known
