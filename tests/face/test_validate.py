"""`tileq validate`: the command, its document, its folder, its page. What needs torch is skipped without it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

import tileq as tq
from tileq.cli.run import run
from tileq.validating import Validated
from tileq.validation_page import validation_page
from tileq_theory.errors import InputError

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)
TINY: dict[str, Any] = {"smoke": True, "budget": 8.0, "policies": ["sarathi"], "fractions": (0.8,), "live": False}


def document() -> dict[str, Any]:
    """What a validation says, as small as it can be."""
    row = {
        "policy": "a<b",
        "fraction": 0.9,
        "load": 0.91,
        "expected": "stable",
        "verdict": "stable",
        "simulated_verdict": "undecided",
        **{f"{n}_{w}_s": 0.02 for n in ("ttft", "tbt") for w in ("mean", "p50", "p99")},
        **{f"{n}_{w}_simulated_over_measured": -0.03 for n in ("ttft", "tbt") for w in ("mean", "p50", "p99")},
    }
    edge = {
        "measured_per_s": 10.0,
        "halfwidth_per_s": 0.5,
        "raw_per_s": 9.0,
        "simulated_per_s": 10.2,
        "rate_over_measured": 0.01,
        "simulated_over_measured": 0.02,
        "raw_rate_over_raw": None,
        "after_rate_over_measured": None,
    }
    order = {
        "fraction": None,
        "figure": "saturated rate",
        "measured": ["a<b"],
        "simulated": ["a<b"],
        "pairs_apart": 0,
        "pairs_in_order": 0,
    }
    summary = {
        "rate_per_s": 10.1,
        "raw_rate_per_s": None,
        "after_rate_per_s": 10.0,
        "edges": {"a<b": edge},
        "best_edge_per_s": 10.0,
        "rate_over_best_edge": 0.01,
        "loads": [row],
        "order": [order],
        "iteration_error": {"bias": 0.01, "median": 0.03, "p90": 0.1},
        "replays_same": True,
        "overhead_share": 0.04,
        "decide_median_us": 20.0,
    }
    return {"title": "A validation", "conditions": {"device": "a <cpu>"}, "summary": summary}


def test_the_page_is_whole_and_escaped() -> None:
    page = validation_page(document())
    assert page.count("<svg") == 3 == page.count("</svg>")
    assert "a&lt;b" in page and "<cpu>" not in page and "a<b" not in page
    assert '<td class="stable">stable</td>' in page
    empty = document()
    empty["summary"] = {
        **empty["summary"],
        "edges": {},
        "loads": [],
        "best_edge_per_s": None,
        "rate_over_best_edge": None,
    }
    assert "<svg" not in validation_page(empty)


def test_without_torch_one_line_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["validate", "--smoke"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "needs PyTorch" in told.err and len(told.err.splitlines()) == 1


@needs_torch
def test_a_validation_runs_and_goes_on(tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "report.html"
    options = ["validate", "--smoke", "--budget", "8", "--policies", "sarathi", "--fractions", "0.8"]
    options += ["--folder", str(tmp_path / "kept"), "--report", str(page), "--json"]
    assert run(options) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["complete"] and first["summary"]["replays_same"]
    assert [c["fraction"] for c in first["cases"]] == [None, 0.8]
    assert first["plan"]["rate_per_s"] > 0 and first["fit"]["points"] >= 5
    assert "<svg" in page.read_text()
    assert Validated(first, True).text().startswith("# Validation of lambda*")
    assert json.loads((tmp_path / "kept" / "report.json").read_text())["cases"] == first["cases"]
    assert run(options) == 0  # everything is there: nothing is run again
    assert json.loads(capsys.readouterr().out)["cases"] == first["cases"]
    assert run([*options, "--seed", "3"]) == 2
    assert "holds a validation with seed 0, now it is 3" in capsys.readouterr().err


@needs_torch
def test_a_calibration_file_is_judged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json"):
        tq.validate(**{**TINY, "calibration": str(tmp_path / "none.json")})


@needs_torch
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="each once"):
        tq.validate(**{**TINY, "policies": ["sarathi", "sarathi"]})
    with pytest.raises(InputError, match="model has positions for"):
        tq.validate(**{**TINY, "classes": ["200000:5"]})


@needs_torch
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policies": [""]}, "policy '' is unknown"),
        ({"policies": ["sarathi", "slai:theta=x"]}, "theta is 'x'"),
        ({"fractions": [0.7, -1.0]}, "fraction of lambda"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"clock": "sundial"}, "clock is 'sundial'; expected one of wall, busy, cpu, steady"),
        ({"kv_tokens": 1}, "the KV cache holds 16"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_profiled(changes: dict[str, Any], says: str) -> None:
    said: list[str] = []
    with pytest.raises(InputError, match=re.escape(says)):
        tq.validate(**{**TINY, **changes}, say=said.append)
    assert said == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--executor", "sglang"], "executor is 'sglang'; expected torch or vllm"),
        (["--executor", "vllm", "--smoke"], "--smoke is not taken with --executor vllm; leave it out"),
        (["--executor", "vllm", "--budget", "60"], "--budget is not taken with --executor vllm"),
        (["--no-server"], "--no-server is not taken with --executor torch; use vllm"),
        (["--executor", "vllm", "--policies", "sarathi,sarathi"], "each once"),
        (
            ["--executor", "vllm", "--policies", "sarathi", "--fractions", "0.7,-1"],
            "rate is -1.0; expected a number above 0",
        ),
        (["--executor", "vllm", "--policies", "wait"], "policy 'wait' is none of vLLM's here"),
        (["--executor", "vllm", "--policies", "sarathi", "--clock", "busy"], "clock is 'busy'"),
        (["--executor", "vllm", "--policies", "sarathi", "--model", "nowhere"], "no folder with config.json"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_bad_input_of_the_vllm_executor(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:

    assert run(["validate", *words]) == 2
    assert says in capsys.readouterr().err
