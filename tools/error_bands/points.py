"""Measured iterations beside the terms of their datasheet roofline, one `Point` each."""

from __future__ import annotations

from dataclasses import dataclass

from tileq_theory.hardware import Model, load_gpu, roofline
from tileq_theory.hardware.bands import Efficiency
from tileq_theory.iteration_time import IterationTime

REGIMES = ("floor", "compute", "decode_attention", "prefill_attention")


@dataclass(frozen=True)
class Point:
    """One iteration: its batch, the model's two rooflines (tiled, affine) and the measured time."""

    gpu: str
    source: str
    tp: int
    tiled: IterationTime
    affine: IterationTime
    tokens: int
    pairs: float
    kv_tokens: float
    sequences: int
    measured_s: float

    def modelled_s(self, affine: bool, factors: Efficiency | None = None) -> float:
        """Return the modelled time, corrected by `factors` when given."""
        t = self.affine if affine else self.tiled
        if factors is not None:
            t = factors.apply(t)
        return float(t(self.tokens, self.pairs, self.kv_tokens, self.sequences))

    def regime(self) -> str:
        """Return the part of the tiled roofline that takes longest."""
        t = self.tiled
        linear = float(t.linear_s(self.tokens))
        parts = {
            "floor": linear if linear <= t.weight_floor_s else 0.0,
            "compute": linear if linear > t.weight_floor_s else 0.0,
            "decode_attention": t.kv_token_s * self.kv_tokens,
            "prefill_attention": t.pair_s * self.pairs,
        }
        return max(parts, key=lambda name: parts[name])


class Bench:
    """Makes the points of one GPU, model and source."""

    def __init__(self, gpu: str, source: str, model: Model, dtype: str = "bf16", tp: int = 1) -> None:
        self.gpu, self.source, self.tp, self.model = load_gpu(gpu), source, tp, model
        self.tiled = roofline(self.gpu, model, dtype=dtype, tp=tp)
        self.affine = roofline(self.gpu, model, dtype=dtype, tp=tp, tile_tokens=None)

    def point(self, tokens: int, pairs: float, kv_tokens: float, sequences: int, measured_s: float) -> Point:
        """Return the point of one batch."""
        return Point(
            self.gpu.name,
            self.source,
            self.tp,
            self.tiled,
            self.affine,
            tokens,
            pairs,
            kv_tokens,
            sequences,
            measured_s,
        )
