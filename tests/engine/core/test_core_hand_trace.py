"""Dai et al., Fig. 8, by hand: the four policies, batch by batch (arXiv 2504.07347)."""

from __future__ import annotations

from typing import Any

import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.registry import policy
from tileq_theory.iteration_time import IterationTime

# A, B and C start prefilled with 2, 4 and 3 tokens to decode; D and E arrive during batch 1
ASKED = Requests.from_arrays(
    arrival_s=[0, 0, 0, 0.5, 0.5], prompt_tokens=1, output_tokens=[2, 4, 3, 1, 1], prefilled_tokens=[1, 1, 1, 0, 0]
)
FIGURE = {
    "vllm_v0": (4, {}, "[ABC][DpEp][ABCD][BCE][B]"),
    "orca": (5, {"chunks": True}, "[ABC][ABCDpEp][BCDE][B]"),
    "orca whole": (5, {}, "[ABC][ABCDpEp][BCDE][B]"),
    "static": (4, {}, "[ABC][ABC][BC][B][DpEp][DE]"),
    "sarathi": (4, {}, "[ABC][ABCDp][BCDEp][BE]"),
}


@pytest.mark.parametrize("mode", ["python", "stepped", "compiled"])
@pytest.mark.parametrize("name", list(FIGURE))
def test_figure_8(name: str, mode: Any) -> None:
    budget, params, expected = FIGURE[name]
    config = EngineConfig(token_budget=budget, convention="paper", trace_limit=100, check=True)
    run = simulate(ASKED, policy(name.split()[0], **params), IterationTime.constant(1.0), config, mode=mode)
    shown = ""
    for batch in run.trace.batches():
        shown += "[" + "".join("ABCDE"[i] + ("p" if chunk else "") for i, chunk, _ in batch) + "]"
    assert shown == expected
    assert run.stop_reason == "finished"


def test_figure_8_times_follow_the_trace() -> None:
    config = EngineConfig(token_budget=4, convention="paper")
    run = simulate(ASKED, policy("sarathi"), IterationTime.constant(1.0), config)
    assert (run.finish_ps // 10**12).tolist() == [2, 4, 3, 3, 4]
    assert (run.prefill_end_ps[3:] // 10**12).tolist() == [2, 3]
    assert (run.first_token_ps // 10**12).tolist() == [1, 1, 1, 3, 4]
