"""Validation on a clock that the fitted model itself drives: predicted and measured are the same by construction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests
from tileq_engine.clock import PS_PER_S
from tileq_engine.executor import TokenHashBackend
from tileq_engine.executor.figures import clock_ratio, error_figures, saturated_rate
from tileq_engine.executor.validation import run_cases, summary
from tileq_engine.executor.validation_case import Case, Trial, case_requests, check_lengths, run_case
from tileq_engine.executor.validation_text import validation_markdown
from tileq_engine.registry import policy
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.004, token_s=1e-4, kv_token_s=1e-6, sequence_s=1e-5)
LOADS = (0.5, 1.4)


def lengths(n: int = 160) -> Requests:
    g = np.random.default_rng(3)
    return Requests.from_arrays(
        arrival_ps=np.zeros(n, dtype=np.int64), prompt_tokens=g.integers(4, 20, n), output_tokens=g.integers(2, 9, n)
    )


def trial(folder: Path | None = None, **changes: Any) -> Trial:
    config = EngineConfig(token_budget=32, max_num_seqs=8, kv_tokens=1024)
    made = Trial(TokenHashBackend(64), None, TIME, config, lengths(), 260.0, TIME, folder=folder)
    return replace(made, **changes)


POLICIES = {"sarathi": policy("sarathi"), "slai": policy("slai")}


def documents_of(given: Trial, **more: Any) -> tuple[list[dict[str, Any]], bool]:
    return run_cases(given, POLICIES, fractions=LOADS, budget_s=120.0, **more)


def test_on_its_own_clock_the_model_is_right(tmp_path: Path) -> None:
    documents, complete = documents_of(trial(tmp_path))
    assert complete and len(documents) == 6
    for d in documents:
        assert d["iteration_error"]["bias"] == pytest.approx(0.0, abs=1e-9)
        assert d["replay"]["same"]
        assert d["measured"] == d["simulated"]
    told = summary(documents, rate_per_s=260.0, raw_rate_per_s=250.0, after_rate_per_s=270.0)
    assert told["replays_same"]
    for edge in told["edges"].values():
        assert edge["simulated_over_measured"] == pytest.approx(0.0, abs=1e-12)
        assert edge["rate_over_measured"] == pytest.approx(260.0 / edge["measured_per_s"] - 1)
    assert [row["verdict"] for row in told["loads"] if row["fraction"] == 1.4] == ["unstable", "unstable"]
    assert all(row["verdict"] != "unstable" for row in told["loads"] if row["fraction"] == 0.5)
    assert all(o["pairs_in_order"] == o["pairs_apart"] for o in told["order"])
    json.dumps(told)
    text = validation_markdown({"title": "t", "conditions": {"device": "none"}, "summary": told})
    assert "| sarathi | 0.5 |" in text and "to the picosecond" in text


def test_finished_cases_are_not_run_again(tmp_path: Path) -> None:
    first, _ = documents_of(trial(tmp_path))

    class Refusing(TokenHashBackend):
        def step(self, batch: Any, rows: Any) -> Any:
            raise AssertionError("it was run again")

    again, complete = documents_of(trial(tmp_path, backend=Refusing(64)))
    assert complete and again == json.loads(json.dumps(first))


def test_a_short_budget_leaves_cases_out_and_says_so(tmp_path: Path) -> None:
    slow = trial(tmp_path, backend=TokenHashBackend(64, pause_s=0.002), clock="busy")
    documents, complete = run_cases(slow, POLICIES, fractions=LOADS, budget_s=0.6)
    assert documents and all(d["replay"]["same"] for d in documents)
    assert complete is (len(documents) == 6)


def test_a_case_that_was_cut_goes_on(tmp_path: Path) -> None:
    case = Case("sarathi", POLICIES["sarathi"], 0.5)
    whole, _ = run_case(trial(), case, budget_s=60.0)

    class Dying(TokenHashBackend):
        def step(self, batch: Any, rows: Any) -> Any:
            if self.steps == 30:
                raise KeyboardInterrupt
            return super().step(batch, rows)

    with pytest.raises(KeyboardInterrupt):
        run_case(trial(tmp_path, backend=Dying(64)), case, budget_s=60.0)
    resumed, document = run_case(trial(tmp_path), case, budget_s=60.0)
    assert document["replay"]["same"]
    assert np.array_equal(resumed.log["decision"][:30], whole.log["decision"][:30])


def test_arrivals_have_exactly_the_rate_asked_for() -> None:
    asked = case_requests(lengths(), 50.0, seed=1)
    assert len(asked) / (asked.arrival_ps[-1] / PS_PER_S) == pytest.approx(50.0, rel=1e-9)
    twice = case_requests(lengths(), 100.0, seed=1)
    assert np.allclose(asked.arrival_ps, 2 * twice.arrival_ps, atol=2)  # the same path at another pace
    assert case_requests(lengths(), None, seed=1).arrival_ps.max() == 0
    with pytest.raises(InputError, match="too few"):
        check_lengths(lengths(10))


def test_the_saturated_rate_is_work_over_time() -> None:
    """Fixed lengths on a constant clock: the rate is the token rate over the tokens of a request."""
    asked = Requests.from_arrays(
        arrival_ps=np.zeros(400, dtype=np.int64), prompt_tokens=np.full(400, 8), output_tokens=np.full(400, 9)
    )
    flat = IterationTime.constant(0.01)
    config = EngineConfig(token_budget=16, max_num_seqs=16, kv_tokens=1024)
    given = Trial(TokenHashBackend(64), None, flat, config, asked, 100.0, flat)
    served, document = run_case(given, Case("sarathi", policy("sarathi"), None), budget_s=60.0)
    rate, half, window = saturated_rate(served.raw)  # type: ignore[misc]
    # 16 tokens an iteration, 8 + 8 a request: one request an iteration of 10 ms, but for the ends of the run
    assert rate == pytest.approx(100.0, rel=0.02) and half < 10
    assert document["saturated_per_s"] == rate == document["saturated_simulated_per_s"]
    assert 0 < window[0] < window[1]
    assert clock_ratio(served.log, "wall_ns") > 0
    assert error_figures(served.log, flat.scaled(1.1))["bias"] == pytest.approx(0.1)
    short = run_case(replace(given, lengths=asked.head(50)), Case("sarathi", policy("sarathi"), None), budget_s=60.0)[0]
    assert saturated_rate(short.raw) is None  # hardly anybody waited after the first tenth had left
