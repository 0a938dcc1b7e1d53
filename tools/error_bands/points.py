"""Measured iterations beside the datasheet roofline of their GPU and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tileq_theory.hardware import Model, load_gpu, roofline
from tileq_theory.hardware.bands import Efficiency
from tileq_theory.iteration_time import IterationTime

REGIMES = ("floor", "compute", "decode_attention", "prefill_attention")


class Bench:
    """One GPU, model and source, with the model's two rooflines (tiled, affine)."""

    def __init__(self, gpu: str, source: str, model: Model, dtype: str = "bf16", tp: int = 1) -> None:
        self.gpu, self.source, self.tp, self.model = load_gpu(gpu), source, tp, model
        self.tiled = roofline(self.gpu, model, dtype=dtype, tp=tp)
        self.affine = roofline(self.gpu, model, dtype=dtype, tp=tp, tile_tokens=None)

    def point(self, tokens: int, pairs: float, kv_tokens: float, sequences: int, measured_s: float) -> Point:
        """Return the point of one batch."""
        return Point(self, (tokens, pairs, kv_tokens, sequences), measured_s)


@dataclass(frozen=True)
class Point:
    """One iteration: its bench, its batch (tokens, pairs, kv_tokens, sequences) and the measured time."""

    bench: Bench
    batch: tuple[float, float, float, float]
    measured_s: float

    @property
    def gpu(self) -> str:
        """Name of the GPU."""
        return self.bench.gpu.name

    @property
    def source(self) -> str:
        """Where the measurement was published."""
        return self.bench.source

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return self.bench.tp


def _by_bench(points: Sequence[Point], evaluate: Callable[[Bench, np.ndarray], np.ndarray]) -> np.ndarray:
    """Return `evaluate(bench, batches)` for all points, one call a bench; batches has a row a quantity."""
    groups: dict[int, list[int]] = defaultdict(list)
    for i, p in enumerate(points):
        groups[id(p.bench)].append(i)
    out = np.empty(len(points))
    for members in groups.values():
        batches = np.array([points[i].batch for i in members]).T
        out[members] = evaluate(points[members[0]].bench, batches)
    return out


def ratios(points: Sequence[Point], affine: bool, factors: Mapping[str, Efficiency] | None = None) -> np.ndarray:
    """Return measured / modelled time of each point, the model corrected by its GPU's factors when given."""

    def modelled(bench: Bench, batches: np.ndarray) -> np.ndarray:
        t: IterationTime = bench.affine if affine else bench.tiled
        t = t if factors is None else factors[bench.gpu.name].apply(t)
        return np.asarray(t(*batches))

    return np.array([p.measured_s for p in points]) / _by_bench(points, modelled)


def regimes(points: Sequence[Point]) -> list[str]:
    """Return for each point the part of the tiled roofline that takes longest."""

    def longest(bench: Bench, batches: np.ndarray) -> np.ndarray:
        t, (tokens, pairs, kv_tokens, _) = bench.tiled, batches
        linear = t.linear_s(tokens)
        floor = np.where(linear <= t.weight_floor_s, linear, 0.0)
        parts = [floor, linear - floor, t.kv_token_s * kv_tokens, t.pair_s * pairs]
        return np.argmax(np.stack(parts), axis=0)

    return [REGIMES[int(i)] for i in _by_bench(points, longest)]
