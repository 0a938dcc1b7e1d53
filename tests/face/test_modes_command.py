"""`tileq analyze modes`: the document of a small question, its text, and that a kept search is taken up again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tileq import mode_search
from tileq.cli.run import run

SMALL = ["analyze", "modes", "--class", "256:16", "--nodes", "2", "--requests", "120", "--replications", "1"]


def test_document_text_and_resuming(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run([*SMALL, "--folder", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    held: dict[str, Any] = json.loads(printed.out)
    assert held["what"] == "modes" and held["winner_by_program"] in held["modes"]
    assert list(held["modes"]) == ["mixed", "aggregated", "disaggregated"]
    assert held["objective"] == {"ttft_p90_s": 2.0, "tbt_p99_s": 0.1}
    for mode in held["modes"].values():
        assert 0 < mode["rate_per_s"] <= 1.02 * mode["program_per_s"]
        assert mode["setting"] in mode["tried_per_s"]
        assert mode["interval"]["low"] <= mode["rate_per_s"]
    assert len(held["modes"]["mixed"]["tried_per_s"]) == 4
    assert held["winner"] == max(held["modes"], key=lambda name: held["modes"][name]["rate_per_s"])

    def again(*_: Any) -> Any:
        raise AssertionError("simulated again what was kept")

    monkeypatch.setattr(mode_search, "run_once", again)
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*SMALL, "--folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("TTFT p90 within 2 s, TBT p99 within 100 ms" in line for line in lines)
    assert sum(line.lstrip().startswith(("mixed ", "aggregated ", "disaggregated ")) for line in lines) == 3
