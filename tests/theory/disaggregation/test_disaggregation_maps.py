"""The map of modes: every cell is the comparison of its own question, and the trends that must hold."""

from __future__ import annotations

import numpy as np
import pytest

from tileq_theory.capacity import Limits
from tileq_theory.demand import Demand
from tileq_theory.disaggregation import KvLink, compare_modes, mode_map, plot_mode_map
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Fixed, Independent

TIME = IterationTime(launch_s=1e-3, weight_floor_s=4e-3, tile_s=2e-3, tile_tokens=64, pair_s=1e-9, kv_token_s=2e-8)
LIMITS = Limits(max_batch_tokens=1024, kv_tokens=100_000, nodes=6)
AXES = {"ratios": [0.5, 8.0], "links_bytes_per_s": [1e8, 1e9, 1e11], "tbt_s": [1e-4, 0.012, np.inf]}


def demand_of(ratio: float) -> Demand:
    prompt = round(1000 * ratio / (1 + ratio))
    return Independent(Fixed(prompt), Fixed(1000 - prompt)).demand(chunk_tokens=1024, counting="least")


def test_every_cell_is_its_comparison() -> None:
    grid = mode_map(demand_of, TIME, LIMITS, bytes_per_token=131072, **AXES)
    for i, limit in enumerate(AXES["tbt_s"]):
        for j, speed in enumerate(AXES["links_bytes_per_s"]):
            for k, ratio in enumerate(AXES["ratios"]):
                if limit < 1e-3:
                    assert grid.winner[i, j, k] == -1
                    continue
                bound = LIMITS.with_(tbt_s=None if np.isinf(limit) else limit)
                found = compare_modes(demand_of(ratio), TIME, bound, link=KvLink(131072, node_bytes_per_s=speed))
                rates = [found.mixed_per_s, found.aggregated_per_s, found.disaggregated_per_s]
                assert grid.rates_per_s[:, i, j, k] == pytest.approx(rates, rel=1e-9)
                assert ("mixed", "aggregated", "disaggregated")[grid.winner[i, j, k]] == found.winner
                assert grid.prefill_nodes[i, j, k] == found.split.prefill_nodes
    assert (np.diff(grid.rates_per_s[2], axis=1) >= -1e-9).all(), "a faster link never hurts"
    assert (grid.rates_per_s[0] >= grid.rates_per_s[1] * (1 - 1e-9)).all(), "mixing may take turns too"
    assert (np.diff(grid.rates_per_s[:, 1:], axis=1) >= -1e-9).all(), "nor does a looser limit"
    assert "TBT 12 ms" in grid.table() and "none" in grid.table()
    figure = plot_mode_map(grid)
    assert len([axes for axes in figure.axes if axes.get_title(loc="left")]) == 3


def test_cells_where_one_decode_outlasts_the_limit_have_no_winner() -> None:
    """The programs let such a decode happen in fractions of one an iteration; no engine can."""
    alone = float(TIME(1, 0.0, demand_of(8.0).shortest_context_tokens, 1))
    limits = [alone * (1 - 1e-9), alone * (1 + 1e-9)]
    grid = mode_map(demand_of, TIME, LIMITS, bytes_per_token=1.0, **{**AXES, "ratios": [8.0], "tbt_s": limits})
    assert grid.winner[0].tolist() == [[-1]] * 3 and grid.rates_per_s[:, 0].max() == 0
    assert (grid.winner[1] >= 0).all()
    with pytest.raises(InputError, match="one decode alone takes"):
        compare_modes(demand_of(8.0), TIME, LIMITS.with_(tbt_s=limits[0]), link=KvLink(1.0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ratios": []}, "ratios is empty"),
        ({"tbt_s": [0.0]}, "tbt_s is 0"),
        ({"links_bytes_per_s": [-1.0]}, "links_bytes_per_s is -1"),
    ],
)
def test_bad_axes_get_one_line(changes: dict[str, list[float]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        mode_map(demand_of, TIME, LIMITS, bytes_per_token=1.0, **{**AXES, **changes})
    with pytest.raises(InputError, match="nodes is 1"):
        mode_map(demand_of, TIME, LIMITS.with_(nodes=1), bytes_per_token=1.0, **AXES)
