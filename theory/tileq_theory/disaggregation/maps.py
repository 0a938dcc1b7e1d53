r"""Where mixing, taking turns and nodes apart win: over prompt/output ratio, link speed and TBT limit.

For each ratio and limit the programs of a mixing node, of a node that takes turns and of the two halves are solved
once; the link enters the split in closed form (`split`), so a map of many links costs no more than one.
"""

from __future__ import annotations

__all__ = ["ModeMap", "mode_map"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.capacity import Limits, capacity
from tileq_theory.capacity.restricted import exclusive_capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation.compare import MODES, servable
from tileq_theory.disaggregation.link import KvLink
from tileq_theory.disaggregation.split import decode_demand, prefill_demand
from tileq_theory.errors import InputError, positive
from tileq_theory.iteration_time import IterationTime

_EQUAL = 1e-6  # rates this near are one rate: the simpler mode wins


@dataclass(frozen=True, slots=True, eq=False)
class ModeMap:
    """Capacity of the same nodes in each mode.

    Parameters
    ----------
    ratios
        Prompt over output tokens of a request.
    links_bytes_per_s
        What one node's port carries.
    tbt_s
        TBT limits, seconds; inf for none.
    nodes
        Nodes in all.
    rates_per_s
        Requests per second of each mode in the order of `MODES`; 0 where no decode meets the limit, even alone.
    winner
        Index into `MODES`, the first among equals; -1 where no decode meets the limit.
    prefill_nodes
        Prefill nodes of the best split.
    """

    ratios: Float[np.ndarray, "ratio"]
    links_bytes_per_s: Float[np.ndarray, "link"]
    tbt_s: Float[np.ndarray, "limit"]
    nodes: int
    rates_per_s: Float[np.ndarray, "mode limit link ratio"]
    winner: Int[np.ndarray, "limit link ratio"]
    prefill_nodes: Int[np.ndarray, "limit link ratio"]

    def table(self) -> str:
        """Return the winners as text, one block a TBT limit: M mixed, A aggregated, D disaggregated, . nothing."""
        letters = np.array(["M", "A", "D", "."])
        blocks = []
        for limit, block in zip(self.tbt_s, self.winner, strict=True):
            named = "none" if np.isinf(limit) else f"{1e3 * limit:.4g} ms"
            head = f"TBT {named}; GB/s \\ P/O  " + " ".join(f"{r:6.4g}" for r in self.ratios)
            rows = [
                f"{link / 1e9:{len(head) - 7 * self.ratios.size}.4g} " + " ".join(f"{letters[w]:>6}" for w in row)
                for link, row in zip(self.links_bytes_per_s, block, strict=True)
            ]
            blocks.append("\n".join([head, *rows]))
        return "\n\n".join(blocks)


def mode_map(
    demand_of: Callable[[float], Demand],
    time: IterationTime,
    limits: Limits,
    *,
    bytes_per_token: float,
    ratios: Sequence[float],
    links_bytes_per_s: Sequence[float],
    tbt_s: Sequence[float],
) -> ModeMap:
    """Return which mode carries most where, on `limits.nodes` equal nodes.

    Parameters
    ----------
    demand_of
        Demand of a request whose prompt is so many times as long as its output.
    time, limits
        Of a node; the TBT limit of `limits` is replaced by each of `tbt_s` (inf for none; prefill nodes have none).
    bytes_per_token
        KV that one prompt token hands over.
    ratios, links_bytes_per_s, tbt_s
        The grid, numbers above 0.

    Raises
    ------
    InputError
        An empty axis, a number that is not above 0, or fewer than two nodes.

    Examples
    --------
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> def of(ratio):
    ...     p = 200 * ratio / (1 + ratio)
    ...     d = 200 - p
    ...     return Demand(p, d, d * p + d * d / 2, p * p / 2, d * p + d * d / 2 + p, d + 1, p, 200)
    >>> grid = mode_map(of, t, Limits(max_batch_tokens=512, nodes=8), bytes_per_token=131072, ratios=[1.0],
    ...                 links_bytes_per_s=[1e6, 1e10], tbt_s=[0.05, float("inf")])
    >>> grid.winner[:, :, 0].tolist()  # nodes apart only draw level here, and a slow link costs them everything
    [[0, 0], [0, 0]]
    >>> bool(grid.rates_per_s[2, 0, 0, 0] < 0.01 * grid.rates_per_s[0, 0, 0, 0])
    True
    """
    for name, values in (("ratios", ratios), ("links_bytes_per_s", links_bytes_per_s), ("tbt_s", tbt_s)):
        if not len(values):
            raise InputError(f"{name} is empty; expected at least one number")
        for value in values:
            if value != np.inf:
                positive(name, value)
    if limits.nodes < 2:
        raise InputError(f"nodes is {limits.nodes}; expected 2 or more: a split takes two")
    shape = (len(tbt_s), len(links_bytes_per_s), len(ratios))
    rates, prefill = np.zeros((len(MODES), *shape)), np.zeros(shape, dtype=np.int64)
    for k, ratio in enumerate(ratios):
        demand = demand_of(float(ratio))
        first = capacity(time, prefill_demand(demand), limits.with_(tbt_s=None, nodes=1)).rate_per_s
        for i, limit in enumerate(tbt_s):
            if not servable(time, demand, float(limit)):
                continue
            bound = limits.with_(tbt_s=None if limit == np.inf else float(limit))
            second = capacity(time, decode_demand(demand), bound.with_(nodes=1)).rate_per_s
            rates[0, i, :, k] = capacity(time, demand, bound).rate_per_s
            rates[1, i, :, k] = exclusive_capacity(time, demand, bound).rate_per_s
            for j, speed in enumerate(links_bytes_per_s):
                link = KvLink(bytes_per_token, node_bytes_per_s=float(speed))
                best, at = _best(limits.nodes, first, second, link.node_s(demand.prompt_tokens))
                rates[2, i, j, k], prefill[i, j, k] = best, at
    top = rates.max(axis=0)
    winner = np.where(top > 0, np.argmax(rates >= top * (1 - _EQUAL), axis=0), -1)
    return ModeMap(
        np.asarray(ratios, dtype=float),
        np.asarray(links_bytes_per_s, dtype=float),
        np.asarray(tbt_s, dtype=float),
        limits.nodes,
        rates,
        winner.astype(np.int64),
        prefill,
    )


def _best(nodes: int, first: float, second: float, wire_s: float) -> tuple[float, int]:
    """Return the rate and the prefill nodes of the best whole split."""
    n = np.arange(1, nodes, dtype=float)
    ports = np.full(n.size, np.inf) if wire_s == 0 else np.minimum(n, nodes - n) / wire_s
    rates = np.minimum(np.minimum(n * first, (nodes - n) * second), ports)
    at = int(np.argmax(rates))
    return float(rates[at]), at + 1
