r"""`capacity`: solve, price every batch size, add what helps, reduce to the fewest levels, read the answer.

How close policies come
-----------------------
The rows hold along every path: of a saturated run, requests over makespan is at most lambda* of the requests served,
for every policy (tests/engine/test_capacity_against_program.py shows it row by row). Work-conserving mixing with the
plan's one budget reaches 98.9 to 100 % on 19 instances (time, floor, slots, TBT and memory bind; 1 to 4 GPUs; dense and
mixture of experts). Where it stays further below, there are three reasons, in order of size:

* Few residents. The program lets batch and memory (or slots) be full together and all the time, N residents cannot:
  prompts come in lumps. The loss against the rate of the same budget falls with the square root of N: one and the same
  node with tiles, memory and slots K times as large loses 8.4, 4.9, 2.7 % at K = 1, 4, 16 (slots 32, geometric
  lengths) and 6.4, 2.7, 1.0 % (memory, ShareGPT lengths, N = 21). Fixed lengths lose a third of what drawn ones do,
  or less. `population.attainable_rate` forecasts it to within 2 %: memory is worth (M - E[P^2]/E[P])/(G/D) residents,
  of which those in prefill wait for what the decodes leave of the batch.
* One batch size. A second one, fitted to few decodes, is worth up to 12 % where memory binds and contexts vary
  (`TilePlan.budget_loss`), and not all of that can be had: the program may decode young requests, whose contexts are
  short, in batches of their own, though a context grows with every step whoever else is in the batch.
* A budget beyond the knee. Prefill that the weights' floor or the last tile would have carried for nothing is then done
  in bursts, and iterations between them decode alone: of the same lambda*, 92 % with 256 tokens, 78 with 512, 69 with
  2048 (8B on 24 GiB, 37 residents). This is why the plan takes the smallest budget near the best.

Smaller: recomputed prompts (2 to 4 % of prefill tokens, hidden where prefill is not what binds; 9 to 18 % where blocks
are taken chunk by chunk), slots set to the mean of what fits (0.4 to 1.5 %), blocks of 16 instead of 1 (0.2 %).
Outside the rows: under the engine's convention a request computed again after a preemption gets one token from its
prefill in place of a decode step. That is dearer than the step by far in every model here.
"""

from __future__ import annotations

__all__ = ["capacity"]

from collections.abc import Iterable

import numpy as np

from tileq_theory.capacity.answer import Capacity
from tileq_theory.capacity.coefficients import Coefficients
from tileq_theory.capacity.kkt import check_kkt
from tileq_theory.capacity.levels import Level, LevelKind, corner_levels
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.pricing import reduced_values
from tileq_theory.capacity.program import Solution, solve_program
from tileq_theory.capacity.reading import binding_limit, elasticities, levels_in_use, prices, time_shares, usage
from tileq_theory.capacity.reduce import fewest_levels
from tileq_theory.capacity.single import single_level_rate
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, SolveError
from tileq_theory.iteration_time import IterationTime

_GAIN = 1e-9  # a batch size whose reduced value is below this share of lambda* would not change the printed digits
_ROUNDS = 40
_PRICED = 16384  # every whole batch size up to here is priced, beyond it the corners and a fine grid
_KKT = 1e-6


def capacity(
    time: IterationTime,
    demand: Demand,
    limits: Limits,
    *,
    levels: Iterable[Level] | None = None,
    kinds: tuple[LevelKind, ...] = ("mixed",),
) -> Capacity:
    """Return the largest rate that any policy can sustain, and why (the program of `theory.md` section 3).

    The program works with means: it may run half a decode in each of two iterations. Where one decode of a request
    cannot meet the TBT limit even alone, the bound is therefore above 0 though the request can never be served;
    `Limits.check_classes`, which plans and regions call, refuses such classes.

    Parameters
    ----------
    time
        Iteration time of one node.
    demand
        Expected demand of one request of the mix.
    limits
        Largest batch, N, M, TBT limit and number of nodes.
    levels
        Prescribed batch sizes (a policy's own); the answer then bounds policies that form only these. Default: every
        whole batch size from 1 to n_max, by column generation.
    kinds
        What batches may hold when `levels` is not given: ("mixed",) or ("prefill", "decode") for exclusive batching.

    Returns
    -------
    Capacity
        An outer bound: no policy is stable beyond `rate_per_s`. Its optimality conditions have been checked.

    Raises
    ------
    InputError
        When some request can never be served, or nothing limits the rate.
    SolveError
        When the solver ends without an optimum, or its answer fails the optimality conditions.

    Examples
    --------
    >>> from tileq_theory import Demand, IterationTime
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> d = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200)
    >>> answer = capacity(t, d, Limits(max_batch_tokens=512))
    >>> round(answer.rate_per_s, 4), answer.binding, answer.levels[0].tokens
    (16.7145, 'time', 512)
    """
    limits.check(time, demand)
    _check_demand(time, demand)
    if levels is not None:
        chosen = list(dict.fromkeys(levels))
        if not chosen:
            raise InputError("no levels given; expected at least one batch size")
        columns = _Columns(time, demand, limits, chosen)
        return _answer(columns, columns.solve(), proof=None)
    columns = _Columns(time, demand, limits, _first_levels(time, demand, limits, kinds))
    solution, proof = _generate(columns, kinds)
    return _answer(columns, solution, proof)


class _Columns:
    """The growing list of levels, with everything needed to solve over it."""

    def __init__(self, time: IterationTime, demand: Demand, limits: Limits, levels: list[Level]) -> None:
        self.time, self.demand, self.limits = time, demand, limits
        self.levels = levels
        self.rate_unit = self._rate_unit()

    def _rate_unit(self) -> float:
        """Return a rate near the optimum, requests per second and node: the best single level."""
        sizes = np.array(sorted({level.tokens for level in self.levels}), dtype=float)
        best = float(single_level_rate(self.time, self.demand, self.limits, sizes).max()) / self.limits.nodes
        if best <= 0:
            raise InputError(
                f"no batch meets the TBT limit of {self.limits.tbt_s} s: the shortest iteration takes "
                f"{float(self.time.tau_s(1)):g} s before any KV is read; raise the limit"
            )
        return best

    @property
    def tokens(self) -> np.ndarray:
        return np.array([level.tokens for level in self.levels], dtype=np.int64)

    @property
    def kinds(self) -> tuple[LevelKind, ...]:
        return tuple(level.kind for level in self.levels)

    def coefficients(self) -> Coefficients:
        return Coefficients.of(self.time, self.demand, self.limits, self.tokens, self.rate_unit, self.kinds)

    def solve(self) -> Solution:
        return solve_program(self.coefficients())


def _check_demand(time: IterationTime, demand: Demand) -> None:
    if demand.prefill_tokens + demand.decode_tokens <= 0:
        raise InputError("a request has no prefill and no decode tokens; expected a demand above 0")
    if float(time.tau_s(1)) <= 0 and time.kv_token_s == time.pair_s == time.sequence_s == 0:
        raise InputError("an iteration of one token takes 0 s, so nothing limits the rate; expected a time above 0")


def _first_levels(time: IterationTime, demand: Demand, limits: Limits, kinds: tuple[LevelKind, ...]) -> list[Level]:
    """Return the corners worth starting from: the ends, the best single levels and the special batch sizes."""
    corners = corner_levels(time, limits)
    rates = single_level_rate(time, demand, limits, corners)
    best = corners[np.argsort(-rates, kind="stable")[:4]]
    special = [n for n in corners if time.tile_s == 0 or n % time.tile_tokens != 0]
    sizes = sorted({int(n) for n in (*best, *special, corners[0], corners[-1])})
    return [Level(n, kind) for kind in kinds for n in sizes]


def _grid(limits: Limits, corners: np.ndarray) -> np.ndarray:
    """Return the batch sizes to price: all whole numbers where they are few."""
    most = limits.max_batch_tokens
    if most <= _PRICED:
        return np.arange(1.0, most + 1)
    fine = np.unique(np.geomspace(_PRICED, most, 4096).astype(np.int64))
    return np.unique(np.concatenate([np.arange(1, _PRICED + 1), fine, corners])).astype(float)


def _generate(columns: _Columns, kinds: tuple[LevelKind, ...]) -> tuple[Solution, float]:
    """Solve and add batch sizes until none has a positive reduced value; return the answer and the largest one."""
    time, demand, limits = columns.time, columns.demand, columns.limits
    grid = _grid(limits, corner_levels(time, limits))
    for _ in range(_ROUNDS):
        solution = columns.solve()
        k = columns.coefficients()
        worst, added = 0.0, False
        for kind in kinds:
            priced = reduced_values(time, demand, limits, k, solution, grid, kind)
            worst = max(worst, priced.best_gain)
            if priced.best_gain <= _GAIN:
                continue
            for j in _local_peaks(priced.gain):
                level = Level(int(grid[j]), kind)
                if level not in columns.levels:
                    columns.levels.append(level)
                    added = True
        if not added:
            break
    smallest = _smallest_single(columns, grid, solution) if "mixed" in kinds else None
    if smallest is not None and smallest not in columns.levels:
        columns.levels.append(smallest)
        solution = columns.solve()
    return solution, worst


def _smallest_single(columns: _Columns, grid: np.ndarray, solution: Solution) -> Level | None:
    """Return the smallest batch size that reaches the optimum alone, if one does: it costs the least latency."""
    rates = single_level_rate(columns.time, columns.demand, columns.limits, grid)
    target = solution.rate * columns.rate_unit * columns.limits.nodes
    reach = np.flatnonzero(rates >= target * (1 - _GAIN))
    return Level(int(grid[reach[0]])) if reach.size else None


def _local_peaks(gain: np.ndarray, most: int = 4) -> np.ndarray:
    """Return the indices of the highest local maxima of `gain` that lie above the tolerance."""
    padded = np.concatenate([[-np.inf], gain, [-np.inf]])
    peak = (gain >= padded[:-2]) & (gain >= padded[2:]) & (gain > _GAIN)
    index = np.flatnonzero(peak)
    return index[np.argsort(-gain[index], kind="stable")[:most]]


def _answer(columns: _Columns, solution: Solution, proof: float | None) -> Capacity:
    time, demand, limits = columns.time, columns.demand, columns.limits
    k = columns.coefficients()
    if proof is not None:
        solution = fewest_levels(time, demand, limits, columns.levels, k, solution)
    report = check_kkt(k, solution)
    if not report.ok(_KKT):
        raise SolveError(f"the capacity program's answer fails its optimality conditions ({report}); report this input")
    elastic = elasticities(time, limits, columns.tokens, k, solution)
    return Capacity(
        rate_per_s=solution.rate * k.rate_unit_per_s * limits.nodes,
        binding=binding_limit(elastic),
        prices=prices(time, demand, k, solution),
        levels=levels_in_use(time, demand, columns.tokens, columns.kinds, k, solution),
        usage=usage(limits, k, solution),
        elasticities=elastic,
        time_shares=time_shares(time, columns.tokens, k, solution),
        levels_proof=proof,
        time=time,
        demand=demand,
        limits=limits,
        coefficients=k,
        solution=solution,
    )
