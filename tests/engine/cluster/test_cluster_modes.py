"""The three ways to use the same nodes, run beyond their programs' rates: what they serve, and who wins.

Each mode's rate is a mean over replications; its Student interval covers with 1 - 1e-4, so a mode that is within 3 % of
its program is called away from it in one of ten thousand runs, and so is a winner who does win.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tileq_engine.cluster import ModeRun, simulate_modes
from tileq_theory.capacity import Limits
from tileq_theory.disaggregation import KvLink, servable
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Fixed, Independent
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload

DAI = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
A100 = IterationTime(  # the catalogue's for Llama-3.1-8B, rounded
    weight_floor_s=0.01071, tile_s=0.00773, tile_tokens=128, token_s=3.85e-6, pair_s=4.085e-9, kv_token_s=9.79e-8,
    sequence_s=4.55e-6,
)  # fmt: skip
KV_TOKENS = 456_000
LINK = KvLink(131072, node_bytes_per_s=25e9)
ALARM = 1e-4
SURE = 0.03  # the programs' lead from which on the simulation must name the same winner


def requests_of(prompt: int, output: int) -> Workload:
    return Workload([RequestClass("one", Independent(Fixed(prompt), Fixed(output)))])


def confirm(found: dict[str, ModeRun], tbt_s: float | None, rounding: float = 0.0) -> None:
    """Each mode within 3 % of its program (`rounding`: what whole residents may lose beside), its iterations within the
    limit on average, and the winner the program's."""
    for mode, run in found.items():
        low, high = (0.97 - rounding) * run.program_per_s, 1.03 * run.program_per_s
        assert run.served.low <= high and run.served.high >= low, (mode, run.served, run.program_per_s)
        assert run.served.half_width < 0.1 * run.program_per_s, (mode, run.served)  # else anything would pass
        assert low <= run.served.estimate <= high, (mode, run.ratio)
        assert tbt_s is None or run.iteration_s <= 1.005 * tbt_s, (mode, run.iteration_s)
    first, second = sorted(found.values(), key=lambda run: -run.program_per_s)[:2]
    if first.program_per_s > (1 + SURE + rounding) * second.program_per_s:
        for mode, run in found.items():
            assert run is first or run.served.estimate < first.served.low, (first.mode, mode)


@pytest.mark.parametrize(
    ("time", "prompt", "output", "tbt_s", "winner"),
    [
        (A100, 496, 16, 0.014, "disaggregated"),  # 19 % ahead: one tile within the limit, which a prefill node fills
        (A100, 496, 16, None, "mixed"),  # the other side of the boundary
        (DAI, 400, 100, 0.05, "disaggregated"),  # 19 % ahead; its iterations depend on nothing but tiles
    ],
)
def test_the_winner_by_the_programs_wins(
    time: IterationTime, prompt: int, output: int, tbt_s: float | None, winner: str
) -> None:
    memory = KV_TOKENS if time is A100 else None
    limits = Limits(max_batch_tokens=1024, max_num_seqs=256, kv_tokens=memory, tbt_s=tbt_s, nodes=8)
    found = simulate_modes(
        requests_of(prompt, output), time, limits, link=LINK, replications=5, seed=3, level=1 - ALARM
    )
    confirm(found, tbt_s)
    assert max(found, key=lambda mode: found[mode].program_per_s) == winner
    assert max(found, key=lambda mode: found[mode].served.estimate) == winner


def test_a_slow_link_stops_the_pools_where_the_program_says() -> None:
    limits = Limits(max_batch_tokens=1024, kv_tokens=KV_TOKENS, tbt_s=0.014, nodes=8)
    slow = KvLink(131072, node_bytes_per_s=5e9)
    found = simulate_modes(requests_of(496, 16), A100, limits, link=slow, replications=4, level=1 - ALARM)
    run = found["disaggregated"]
    assert run.program_per_s < 0.75 * 216.2  # what it is with a fast link: two ports of 5 GB/s, 65 MB a request
    assert abs(run.ratio - 1) <= 0.03 and run.served.half_width <= 0.03 * run.program_per_s, (run.ratio, run.served)


def test_nothing_is_confirmed_where_nothing_is_full_or_can_be_served() -> None:
    limits = Limits(max_batch_tokens=512, nodes=2)
    with pytest.raises(InputError, match=r"over is 1\.0; expected a number above 1"):
        simulate_modes(requests_of(10, 10), DAI, limits, link=LINK, over=1.0)
    assert not servable(A100, requests_of(4033, 63).demand(chunk_tokens=1024), 0.011)
    with pytest.raises(InputError, match="one decode alone takes"):
        simulate_modes(requests_of(4033, 63), A100, limits.with_(tbt_s=0.011), link=LINK)


_RATIOS, _LIMITS, _TOTALS = (1.0, 4.0, 8.0, 16.0, 32.0), (0.012, 0.014, 0.016, 0.02, math.inf), (512, 1024, 4096)


@pytest.mark.campaign
@pytest.mark.parametrize(("total", "ratio", "tbt_s"), list(itertools.product(_TOTALS, _RATIOS, _LIMITS)))
def test_the_map_is_confirmed_cell_by_cell(total: int, ratio: float, tbt_s: float) -> None:
    prompt = round(total * ratio / (1 + ratio))
    limit = None if np.isinf(tbt_s) else tbt_s
    limits = Limits(kv_tokens=KV_TOKENS, tbt_s=limit, nodes=8)
    asked = requests_of(prompt, total - prompt)
    if limit is not None and not servable(A100, asked.demand(chunk_tokens=8192), limit):
        with pytest.raises(InputError, match="one decode alone takes"):
            simulate_modes(asked, A100, limits, link=LINK)
        return
    found = simulate_modes(asked, A100, limits, link=LINK, replications=5, level=1 - ALARM)
    # a node has room for so many decodes of the mean context within the limit
    room = math.inf if limit is None else (limit - 0.01071) / (9.79e-8 * (prompt + (total - prompt) / 2))
    if room >= 2:  # else a whole resident more or less is everything
        confirm(found, limit, rounding=1 / room)
