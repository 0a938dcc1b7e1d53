"""A validation of vLLM as Markdown, as a page and on a terminal; its results kept in a folder. No vLLM."""

from __future__ import annotations

import copy
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_ind

from tileq.cli.validate_vllm import render_vllm
from tileq.validating import Validated
from tileq.validating_vllm_bench import Fitted, edge_of, four, over_edges, sequence
from tileq.validation_kept import Kept
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

FOUR = {"ttft_p50_s": 0.02, "ttft_p99_s": 0.04, "tbt_mean_s": 0.004, "tbt_p99_s": 0.006}
REPLAY = {"iterations": 300, "of": 300, "same": True, "differences": [], "tokens_us": 0.0}


def document(server: bool = True) -> dict[str, Any]:
    load = {"fraction": 0.7, "rate_per_s": 7.0, "load": 0.77, "measured": FOUR, "simulated": FOUR}
    edge = {"edge_per_s": 9.0, "edge_halfwidth_per_s": 0.31, "edges_per_s": [8.8, 9.2]}
    case = {"policy": "sarathi", **edge, "edge_simulated_per_s": 9.5}
    over = {"estimate": 0.11, "low": 0.04, "high": 0.18, "rounds": 5}
    told = {**FOUR, "throughput_per_s": 6.5, "completed": 80, "failed": 0}
    served = {**load, "measured": told, "scheduler": FOUR, "simulated": {**FOUR, "throughput_per_s": 6.8}}
    online = {
        "client": "vllm bench serve",
        "logs": "kept",
        "rate_per_s": 5.0,
        "rate_over_best_edge": 0.05,
        "rate_over_edge": {**over, "estimate": 0.05},
        "cases": [{**case, "edge_per_s": 4.75, "replay": REPLAY, "loads": [served]}],
    }
    return {
        "title": "vLLM around lambda*",
        "executor": "vllm",
        "conditions": {"model": "small", "device": "cpu", "vllm": "0.32.0"},
        "fit": {"points": 640},
        "plan": {"token_budget": 64},
        "cases": [{**case, "replays": [REPLAY, REPLAY], "loads": [{**load, "replay": REPLAY}]}],
        "server": online if server else None,
        "summary": {
            "rate_per_s": 10.0,
            "rate_over_best_edge": 0.11,
            "rate_over_edge": over,
            "replays_same": True,
            "iterations_replayed": 900,
        },
    }


@pytest.mark.parametrize("server", [True, False])
def test_the_report_says_what_the_document_does(server: bool, tmp_path: Path) -> None:
    made = Validated(document(server), complete=True)
    text = made.text()
    assert "| sarathi | 0.7 | 0.770 | measured | 20 ms | 40 ms | 4 ms | 6 ms |" in text
    assert "the same decisions in all of 900 iterations" in text
    assert ("driven by vllm bench serve" in text) is server
    assert ("| sarathi | 0.7 | 7/s | 6.5/s | 6.8/s | 80, 0 failed |" in text) is server
    page = made.report(tmp_path / "page.html").read_text()
    assert page.count("<svg") == (6 if server else 3)
    seen = io.StringIO()
    render_vllm(made.to_dict(), Console(file=seen, width=120))
    assert "A server on the loopback" in seen.getvalue() or not server
    assert "+11.0 % over the edge of sarathi (+4.0 % to +18.0 %, 5 rounds)" in seen.getvalue()
    assert "9 0.31 9.5" in " ".join(seen.getvalue().split())


def test_a_replay_that_differs_is_said_so() -> None:
    changed = copy.deepcopy(document())
    changed["summary"]["replays_same"] = False
    changed["server"]["cases"][0]["replay"] = {**REPLAY, "same": False, "differences": ["iteration 7: who"]}
    assert "the simulator DIFFERS: iteration 7: who" in Validated(changed, True).text()


def test_no_latency_is_shown_where_nothing_was_measured() -> None:
    changed = copy.deepcopy(document())
    changed["cases"][0]["loads"][0]["measured"] = dict.fromkeys(FOUR)
    changed["cases"][0]["edge_per_s"] = None
    assert "| sarathi | 0.7 | 0.770 | measured | - | - | - | - |" in Validated(changed, True).text()
    render_vllm(changed, Console(file=io.StringIO(), width=120))


def test_finished_steps_are_kept_and_those_of_another_question_refused(tmp_path: Path) -> None:
    made: list[str] = []

    def make(name: str) -> dict[str, Any]:
        made.append(name)
        return {"made": name}

    question = {"executor": "vllm", "fractions": (0.7, 0.9)}
    first = Kept(tmp_path, question, True)
    assert first.or_made("a", lambda: make("a")) == {"made": "a"}
    again = Kept(tmp_path, question, True)
    assert again.or_made("a", lambda: make("never")) == {"made": "a"} and made == ["a"]
    with pytest.raises(InputError, match=r"holds a validation with fractions \[0.7, 0.9\], now it is \[0.5\]"):
        Kept(tmp_path, {**question, "fractions": (0.5,)}, True)
    anew = Kept(tmp_path, {**question, "fractions": (0.5,)}, False)
    assert anew.or_made("a", lambda: make("b")) == {"made": "b"}

    def fail() -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        anew.or_made("c", fail)
    assert not (tmp_path / "c.kept.json").exists()


def test_a_fit_comes_back_out_of_its_document() -> None:
    fitted = Fitted(IterationTime(launch_s=0.002, token_s=1e-5, pair_s=1e-9, kv_token_s=2e-8), 12, 0.03)
    back = Fitted.of(fitted.to_dict())
    assert float(back.time(64, 10, 20, 3)) == float(fitted.time(64, 10, 20, 3)) and back.points == 12


def test_four_figures_of_nothing_are_none() -> None:
    assert set(four(np.full(3, np.nan), np.zeros(0)).values()) == {None}
    with pytest.raises(InputError, match="each once"):
        sequence([])


def test_an_edge_is_the_mean_of_its_rounds_and_lambda_lies_over_it() -> None:
    """By hand: t of 2 degrees is 4.302653; the interval of a difference of means is scipy's own (Welch)."""
    found = edge_of([10.0, 11.0, None, 12.0])
    assert found["edge_per_s"] == 11.0 and found["edges_per_s"] == [10.0, 11.0, None, 12.0]
    assert found["edge_halfwidth_per_s"] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert edge_of([None, None])["edge_per_s"] is None and edge_of([7.0])["edge_halfwidth_per_s"] is None
    rates, edges = [10.0, 10.0, 40.0, 10.0], [11.0, 20.0, 18.0]
    over = over_edges(14.7, rates, [*edges, None])
    assert over is not None and over["rounds"] == 3 and over["estimate"] == pytest.approx(14.7 / (49 / 3) - 1)
    known = ttest_ind(np.log(rates), np.log(edges), equal_var=False).confidence_interval(0.95)
    half = (known.high - known.low) / 2
    assert (1 + over["high"]) / (1 + over["estimate"]) == pytest.approx(math.exp(half), rel=1e-9)
    assert (1 + over["low"]) / (1 + over["estimate"]) == pytest.approx(math.exp(-half), rel=1e-9)
    assert over_edges(10.0, [10.0], [None]) is None
    one = {"estimate": pytest.approx(0.25), "low": None, "high": None, "rounds": 1}
    assert over_edges(10.0, [10.0], [8.0]) == one
    assert over_edges(10.0, [10.0, 10.0], [8.0, 8.0]) == {
        **one,
        "low": pytest.approx(0.25),
        "high": pytest.approx(0.25),
        "rounds": 2,
    }


@pytest.mark.parametrize(("of_profiles", "of_edges"), [(0.1, 0.0), (0.1, 0.1), (0.0, 0.1)])
def test_the_interval_over_rounds_covers(of_profiles: float, of_edges: float) -> None:
    """Of 1500 validations in which lambda* is the edge at least 94 % have it in their interval; 95 % is stated.

    A procedure that covers 95 % falls below that once in 25 such tests; the seed is fixed. The spread of a round's
    ratio to the profiles on both its sides would cover in 85 % (profiles alone scatter) and 93 % (both do), since
    neighbours share one.
    """
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(1500):
        rates = np.exp(rng.normal(0.0, of_profiles, 6)).tolist()
        edges = np.exp(rng.normal(0.0, of_edges, 5)).tolist()
        found = over_edges(float(np.exp(np.mean(np.log(rates)))), rates, edges)
        assert found is not None
        covered += found["low"] <= 0.0 <= found["high"]
    assert covered >= 0.94 * 1500
