"""The frame of the reproductions: pieces, resuming, stale data, verdicts, the report, the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import paper_repro.framework.run as running
from paper_repro.framework.item import Data, Item
from paper_repro.framework.run import reproduce
from paper_repro.framework.store import Store
from paper_repro.framework.verdict import REPRODUCED, Row, claim, digits, shape, summary, within
from tileq.cli.run import run
from tileq_engine.intervals import Interval, student_interval
from tileq_theory.errors import InputError

Capture = pytest.CaptureFixture[str]


def squares(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    return {"square": piece["n"] ** 2 + seed}


def drawn(data: Data, plt: Any) -> Any:
    figure, axes = plt.subplots()
    axes.plot([r["square"] for r in data.results])
    return figure


def judged(data: Data) -> list[Row]:
    return [digits("2 squared", "4", data.one(n=2)["square"], reason="it is not")]


def toy(**changes: Any) -> Item:
    fields: dict[str, Any] = {
        "name": "dai-batch-time",
        "paper": "nobody",
        "where": "nowhere",
        "claim": "Squares.",
        "simulated": "nothing.",
        "smoke": {"count": 4},
        "full": {"count": 6},
        "pieces": lambda settings: [{"n": n} for n in range(settings["count"])],
        "compute": squares,
        "rows": judged,
        "plot": drawn,
    }
    return Item(**{**fields, **changes})


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put an item of one's own in the place of the first."""

    def put(item: Item) -> str:
        monkeypatch.setattr(running, "item", lambda name: item)
        return item.name

    return put


def test_a_run_leaves_data_figure_and_verdict(tmp_path: Path, only: Any) -> None:
    name = only(toy())
    answer = reproduce([name], smoke=True, folder=tmp_path, jobs=1, progress=False)
    (found,) = answer.items
    assert found.verdict == REPRODUCED and [r["square"] for r in found.data.results] == [0, 1, 4, 9]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{name}.json", f"{name}.svg"]
    assert answer.to_dict()["items"][0]["rows"][0]["ours"] == "4"


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, only: Any) -> None:
    asked: list[int] = []

    def breaking(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
        asked.append(piece["n"])
        if asked == [0, 1, 2]:
            raise KeyboardInterrupt
        return squares(settings, piece, seed)

    name = only(toy(compute=breaking))
    with pytest.raises(KeyboardInterrupt):
        reproduce([name], smoke=True, folder=tmp_path, jobs=1, progress=False)
    reproduce([name], smoke=True, folder=tmp_path, jobs=1, progress=False)
    assert asked == [0, 1, 2, 2, 3]
    reproduce([name], smoke=True, folder=tmp_path, jobs=1, progress=False)
    assert len(asked) == 5, "a finished item is not computed again"
    reproduce([name], smoke=True, folder=tmp_path, jobs=1, progress=False, fresh=True)
    assert len(asked) == 9


def test_other_settings_seed_or_sources_are_computed_anew(
    tmp_path: Path, only: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = only(toy())

    def second(**asked: Any) -> list[int]:
        data = reproduce([name], folder=tmp_path, jobs=1, progress=False, **asked).items[0].data
        return [r["square"] for r in data.results]

    assert second(smoke=True) == [0, 1, 4, 9]
    assert second(smoke=False) == [0, 1, 4, 9, 16, 25]
    assert second(smoke=True, seed=1) == [1, 2, 5, 10]
    only(toy(compute=lambda settings, piece, seed: {"square": -1}))
    assert second(smoke=True, seed=1) == [1, 2, 5, 10]  # the same sources, as far as the store can see
    monkeypatch.setattr(running, "sources", lambda module: "another")
    assert second(smoke=True, seed=1) == [-1] * 4


def test_redraw_computes_nothing(tmp_path: Path, only: Any) -> None:
    name = only(toy())
    with pytest.raises(InputError, match="compute it first"):
        reproduce([name], folder=tmp_path, redraw=True)
    first = reproduce([name], smoke=True, folder=tmp_path, jobs=1, progress=False, report=True)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    only(toy(compute=lambda settings, piece, seed: pytest.fail("computed")))
    assert reproduce([name], folder=tmp_path, redraw=True, report=True).to_dict() == first.to_dict()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_pieces_must_differ(tmp_path: Path, only: Any) -> None:
    name = only(toy(pieces=lambda settings: [{"n": 1}, {"n": 1}]))
    with pytest.raises(InputError, match="no two alike"):
        reproduce([name], folder=tmp_path, jobs=1)


def test_a_process_killed_hard_loses_only_what_was_running(tmp_path: Path) -> None:
    """SIGKILL in the middle of a run of two workers; the second run takes the pieces up."""
    command = [sys.executable, "-m", "tileq", "reproduce", "dai-load-table", "--smoke", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen(
        [*command, "--jobs", "1"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    pieces = tmp_path / ".pieces"
    until = time.monotonic() + 60
    while not list(pieces.rglob("*.json")) and first.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {p.name: p.stat().st_mtime_ns for p in pieces.rglob("*.json")}
    assert kept, "at least one piece was written before the kill"
    assert not (tmp_path / "dai-load-table.json").exists()
    for path in pieces.rglob("*.json"):  # a mark that shows whether the piece is taken up or computed again
        whole = json.loads(path.read_text())
        path.write_text(json.dumps({**whole, "wall_s": 1e6}))
    done = subprocess.run(
        [*command, "--json", "--jobs", "2"], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["wall_s"] >= 1e6 * len(kept)
    assert not pieces.exists()


# -------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("published", "ours", "verdict"),
    [
        ("153.16 ms", 153.1649, "reproduced"),
        ("153.16 ms", 153.1651, "not reproduced"),
        ("16,240", 16240.0, "reproduced"),
        ("-53 %", -53.4, "reproduced"),
        ("-53 %", -53.6, "not reproduced"),
    ],
)
def test_digits_hold_to_the_last_printed_one(published: str, ours: float, verdict: str) -> None:
    assert digits("x", published, ours, reason="why").verdict == verdict


def test_a_failing_row_has_a_reason_and_shows_one_more_digit() -> None:
    row = digits("x", "2.50 s", 2.61, reason="because")
    assert (row.ours, row.reason) == ("2.610 s", "because")
    assert digits("x", "2.50 s", 2.5, reason="because").reason == ""


def test_an_interval_holds_the_number_as_far_as_its_digits_tell() -> None:
    interval = Interval(10.0, 9.0, 10.96, 0.99, "t", 5)
    assert within("x", "11", interval).verdict == "reproduced"  # 11 may be 10.5
    assert within("x", "11.5", interval, reason="why").verdict == "not reproduced"
    assert within("x", "11.5", interval, reason="why", close=0.2).verdict == "shape only"
    assert "(99 %)" in within("x", "10", interval).ours
    assert "too wide" in within("x", "1", student_interval([1.0])).reason
    assert within("x", "1", Interval(50.0, 30.0, 70.0, 0.99, "t", 5), reason="why").reason == "why"


def test_statements_and_shapes() -> None:
    assert claim("x", "grows", True, "grew").verdict == "reproduced"
    assert claim("x", "grows", False, "fell", reason="why").reason == "why"
    assert shape("x", "2.6", True, "1.9", reason="other hardware").verdict == "shape only"
    assert summary([claim("x", "a", True, "b"), shape("x", "2", True, "1", reason="r")]) == "1 reproduced, 1 shape only"
    with pytest.raises(InputError, match="does not begin with a number"):
        digits("x", "about 3", 3.0)


# -------------------------------------------------------------------- command


def test_the_command_lists_items(capsys: Capture) -> None:
    assert run(["reproduce", "--list", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert "dai-batch-time" in [i["name"] for i in items]
    assert all(i["paper"] and i["where"] and i["claim"].endswith(".") for i in items)


def test_the_command_reproduces_an_item(tmp_path: Path, capsys: Capture) -> None:
    assert run(["reproduce", "dai-batch-time", "--smoke", "--jobs", "1", "--out", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    d = json.loads(printed.out, parse_constant=pytest.fail)
    assert printed.err == "" and d["items"][0]["verdict"] == REPRODUCED
    assert run(["reproduce", "dai-batch-time", "--smoke", "--jobs", "1", "--out", str(tmp_path)]) == 0
    assert "153.16 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dai-batch-tim"], "did you mean dai-batch-time"),
        ([], "--all"),
        (["dai-batch-time", "--all"], "--all"),
        (["dai-batch-time", "--jobs", "0"], "jobs is 0"),
        (["dai-batch-time", "--seed", "-1"], "seed is -1"),
    ],
)
def test_what_the_command_refuses(arguments: list[str], says: str, tmp_path: Path, capsys: Capture) -> None:
    assert run(["reproduce", *arguments, "--out", str(tmp_path / "x")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and says in printed.err and len(printed.err.splitlines()) == 1


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(InputError, match="is a file"):
        reproduce(["dai-batch-time"], smoke=True, folder=tmp_path / "x", jobs=1)
    (tmp_path / "dai-batch-time.json").write_text("{}")
    with pytest.raises(InputError, match="delete it"):
        Store(tmp_path).read("dai-batch-time")


@pytest.mark.parametrize("redraw", [False, True])
def test_a_folder_that_cannot_be_written_is_refused_first(
    redraw: bool, tmp_path: Path, only: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = only(toy())
    reproduce([name], smoke=True, folder=tmp_path, jobs=1)

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("paper_repro.framework.store.tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match=r"cannot be written \(Permission denied\).*--out"):
        reproduce([name], smoke=True, folder=tmp_path, jobs=1, redraw=redraw, fresh=not redraw)


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        reproduce(["dai-traces"], smoke=True, folder=tmp_path / "file" / "below", jobs=1)
