"""Dai et al.'s overload slope without statistics: a work-conserving policy serves full batches, path by path.

`test_campaign_dai` holds the mean slope of twenty runs against the printed .3343 and .6686 tokens/ms. Its 99 %
intervals are as wide as Poisson arrivals make them (+- .036); on fresh seeds one of the four would miss in 4 sets of a
hundred, and the seeds are fixed. Given the arrivals of a path nothing is left to chance: work grows by what arrived
less b_max/t a millisecond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import simulate
from tileq_theory.iteration_time import IterationTime

DAI = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
BUDGET, TOKENS = 512, 200
SERVED_PER_S = BUDGET / float(DAI(BUDGET))


@pytest.mark.parametrize(("load", "printed"), [(1.1, 0.3343), (1.2, 0.6686)])
@pytest.mark.parametrize(("name", "params"), [("sarathi", {}), ("orca", {"chunks": True}), ("vllm_v1", {})])
def test_the_overload_slope_of_a_path(name: str, params: dict[str, Any], load: float, printed: float) -> None:
    rng = np.random.default_rng(7)
    begin_s, end_s = 200.0, 500.0  # by then the backlog is some hundred requests
    count = int(rng.poisson(load * SERVED_PER_S / TOKENS * end_s))
    arrival_s = np.sort(rng.uniform(0, end_s, count))
    requests = Requests.from_arrays(prompt_tokens=np.full(count, 100), output_tokens=100, arrival_s=arrival_s)
    slots = 100_000 if name != "vllm_v1" else BUDGET
    config = EngineConfig(
        token_budget=BUDGET, max_num_seqs=slots, convention="paper", stop_time_s=end_s, sample_limit=1_000_000
    )
    samples = simulate(requests, policy(name, **params), DAI, config).samples
    start = samples.start_ps * 1e-12
    inside = (start >= begin_s) & (start < end_s)
    assert (samples.prefill_tokens + samples.decode_tokens)[inside].tolist() == [BUDGET] * int(inside.sum())
    begin, end = np.flatnonzero(inside)[[0, -1]]
    span_ms = 1000 * (start[end] - start[begin])
    arrived = ((arrival_s > start[begin]) & (arrival_s <= start[end])).sum() * TOKENS
    slope = (samples.work_tokens[end] - samples.work_tokens[begin]) / span_ms
    assert slope == pytest.approx(arrived / span_ms - SERVED_PER_S / 1000, abs=1e-9)
    # at the nominal rate of arrivals that is the printed number
    assert load * SERVED_PER_S / 1000 - SERVED_PER_S / 1000 == pytest.approx(printed, abs=5e-5)
    assert slope + (load * SERVED_PER_S / 1000 - arrived / span_ms) == pytest.approx(printed, abs=5e-5)
