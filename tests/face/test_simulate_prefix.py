"""`tileq simulate --prefix-cache`: table, document, figure, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tileq as tq
from tileq.cli.run import run

SMALL = ["--requests", "300", "--replications", "2"]
CONVERSATIONS = "conversations:turns=5:system=256:user=32:answer=64:think=10"


def document(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(words) == 2
    line = capsys.readouterr().err.strip()
    assert "\n" not in line
    return line


def test_document(capsys: pytest.CaptureFixture[str]) -> None:
    d = document(["simulate", "--workload", CONVERSATIONS, "--prefix-cache", *SMALL], capsys)
    cache = d["prefix_cache"]
    assert d["setting"]["prefix_cache"] is True
    assert 0.3 < cache["hit_rate"] < 1 and cache["hit_tokens"] == pytest.approx(
        cache["hit_rate"] * cache["lookup_tokens"], rel=0.05
    )
    plain = document(["simulate", "--workload", CONVERSATIONS, *SMALL], capsys)
    assert "prefix_cache" not in plain and "prefix_cache" not in plain["setting"]
    assert d["batch"]["mean_prefill_tokens"] < plain["batch"]["mean_prefill_tokens"]


def test_table_and_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture, rows = tmp_path / "hits.svg", tmp_path / "rows.csv"
    words = ["simulate", "--workload", CONVERSATIONS, "--prefix-cache", *SMALL, "--policy", "sglang"]
    assert run([*words, "--plot", str(picture), "--picture", "hits", "--export", str(rows)]) == 0
    text = capsys.readouterr().out
    assert "prefix cache" in text and "of prompt tokens found" in text
    assert "Prefix cache" in picture.read_text(encoding="utf-8")
    assert "prefix_hit_tokens" in rows.read_text(encoding="utf-8").splitlines()[0]


def test_python_and_trace(data: Path) -> None:
    answer = tq.simulate(
        "vllm_v1", trace=data / "mooncake" / "conversation_trace.jsonl", prefix_cache=True, requests=400, replications=2
    )
    d = answer.to_dict()
    assert d["prefix_cache"]["lookups"] > 0
    assert answer.run.counters["prefix_hit_tokens"] == int(answer.run.requests["prefix_hit_tokens"].sum())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--prefix-cache"], "tells no prompt's blocks; give a trace with hash_ids"),
        (["--prefix-cache", "--class", "512:64"], "tells no prompt's blocks"),
        (["--workload", "conversations:turn=4"], "'turn' is unknown; did you mean"),
        (["--workload", "conversations:turns=two"], "turns is 'two'; expected a number"),
        (["--workload", "conversations:turns=2:turns=3"], "turns twice"),
        (["--workload", "conversations:turns=0"], "turns is 0"),
        (["--workload", "conversations:zipf=-1"], "zipf is -1"),
        (["--workload", "conversations:user=geometric(0)"], "expected"),
        (["--workload", "conversations:block=24", "--prefix-cache", *SMALL], "a whole number of KV blocks"),
        (["--workload", CONVERSATIONS, *SMALL, "--plot", "x.svg", "--picture", "hits"], "without --prefix-cache"),
    ],
)
def test_bad_input(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in refused(["simulate", *words], capsys)


def test_a_trace_is_not_repeated(data: Path) -> None:
    from tileq_theory.errors import InputError

    with pytest.raises(InputError, match="20000 requests are asked for"):
        tq.simulate(trace=data / "mooncake" / "conversation_trace.jsonl", prefix_cache=True, requests=20_000)
