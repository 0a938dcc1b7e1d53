"""What happens to the stable rates when one thing changes: the reusable part of the sliders and of the explorer page.

A pure function from settings to an answer; whoever draws controls calls it with what the controls say.

    answer = explore(Settings(gpu="h100-sxm", classes=("chat=1024:256", "code=4096:32"), rates=(4.0, 1.0)))
    answer.inside, answer.binding, answer.facts(), answer.figure()
"""

from __future__ import annotations

__all__ = ["Explored", "Settings", "explore"]

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq.planning import Plan, plan
from tileq.regions import Region, region
from tileq.words import binding_sentence, number, percent, seconds
from tileq_theory.capacity import Capacity, capacity
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, nonnegative

if TYPE_CHECKING:
    from tileq_theory.request_class import RequestClass

_CLASSES = ("chat=1024:256", "code=4096:32")
_KEPT = 128  # answers kept: a slider moved back costs nothing


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controls say.

    Parameters
    ----------
    gpu, model
        Catalogue names (`tileq.gpu_names()`, `tileq.model_names()`).
    classes
        One line a class as in `tileq region --class`: "name=P:O" with lengths in tokens, or laws. Names differ.
    rates
        Operating point, requests per second, one a class; None: half-way to the boundary with equal rates.
    tbt_s
        Longest time between two tokens, seconds; None: no limit.
    ttft_s
        Longest time to the first token of a mean prompt in an empty system, seconds; None: no limit. It bounds the
        plan's token budget, not the region.
    memory_utilisation
        Share of the GPU's memory that the engine may use, above 0 and at most 1.
    tp, nodes
        GPUs that share one copy of the model; equal copies.
    dtype, kv_dtype
        Number formats of the weights and of the KV cache (None: 16 bits).
    max_num_seqs, max_tokens
        Most sequences in a batch (None: what memory allows); largest batch considered, tokens.
    engine
        Whose flags to write: vllm, sglang or sarathi.

    Examples
    --------
    >>> Settings(rates=(4.0, 1.0)).with_(tbt_s=0.05).tbt_s
    0.05
    """

    gpu: str = "h100-sxm"
    model: str = "llama-3.1-8b"
    classes: tuple[str, ...] = field(default=_CLASSES)
    rates: tuple[float, ...] | None = None
    tbt_s: float | None = None
    ttft_s: float | None = None
    memory_utilisation: float = 0.9
    tp: int = 1
    nodes: int = 1
    dtype: str = "bf16"
    kv_dtype: str | None = None
    max_num_seqs: int | None = None
    max_tokens: int = 8192
    engine: str = "vllm"

    def __post_init__(self) -> None:
        # lists come from JSON and from widgets; what is kept must be hashable
        object.__setattr__(self, "classes", tuple(self.classes))
        if self.rates is not None:
            object.__setattr__(self, "rates", tuple(nonnegative("rate", rate) for rate in self.rates))

    def with_(self, **changes: Any) -> Settings:
        """Return a copy with the named settings changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explored:
    """The answer of `explore`.

    Parameters
    ----------
    settings
        What was asked, with the operating point filled in.
    region
        The stable rates of all classes.
    bound
        The capacity program at the operating point's mix: the region's boundary there, and why it is where it is.
    plan
        The tile plan for that mix: budget, residents, flags. Its own batches decide how much memory is left for KV, so
        its capacity may differ from the boundary a little.
    """

    settings: Settings
    region: Region
    bound: Capacity
    plan: Plan

    @property
    def rates(self) -> tuple[float, ...]:
        """Operating point, requests per second, one a class."""
        assert self.settings.rates is not None  # explore() fills it in
        return self.settings.rates

    @property
    def load(self) -> float:
        """Load at the operating point: below 1 inside the region, 1 on its boundary."""
        return self.region.theory.load(self.rates)

    @property
    def inside(self) -> bool:
        """Whether no bound rules the operating point out."""
        return self.region.theory.contains(self.rates)

    @property
    def headroom(self) -> float | None:
        """Factor by which all rates can grow together until the boundary; None where all are 0."""
        factor = self.region.theory.headroom(self.rates)
        return factor if math.isfinite(factor) else None

    @property
    def binding(self) -> str:
        """The constraint that the mix of the operating point meets first: time, memory, slots, tbt, weights_floor."""
        return self.bound.binding

    @property
    def reason(self) -> str:
        """One sentence: why the boundary is where it is for this mix."""
        return binding_sentence(self.bound.binding, self.bound.time_shares, self.bound.limits)

    def facts(self) -> list[tuple[str, str]]:
        """Return what to show beside the figure: label and value, in words and with units."""
        tile, low_high = self.plan.tile, self.bound.error_band
        where = "inside: no bound rules it out" if self.inside else "outside: no policy serves it"
        total = sum(self.rates)
        rows = [
            ("operating point", f"{' + '.join(number(rate) for rate in self.rates)} requests/s, {where}"),
            ("load", percent(self.load)),
        ]
        if self.headroom is not None:
            rows.append(("all rates together", f"up to {number(total * self.headroom)} requests/s at this mix"))
        rows += [
            ("error band", f"{number(low_high[0])} to {number(low_high[1])} requests/s"),
            ("what binds", self.reason),
            ("token budget", f"{number(self.plan.token_budget)} tokens an iteration"),
            (
                "tile",
                f"{number(round(tile.prefill_tokens))} prefill + {number(round(tile.decode_tokens))} decode tokens",
            ),
            ("an iteration", seconds(tile.iteration_s)),
            ("sequences at most", number(tile.max_num_seqs)),
            ("flags", self.plan.flags.command()),
        ]
        return rows

    def warnings(self) -> tuple[str, ...]:
        """Return what to know before relying on the numbers, each once."""
        return tuple(dict.fromkeys([*self.region.warnings, *self.plan.warnings]))

    def figure(self, earlier: Explored | None = None) -> Any:
        """Return a matplotlib figure of the region with the operating point; 2 or 3 classes.

        With `earlier`, an answer for the same number of classes, its region is outlined beneath (two classes).
        """
        from tileq.plots.region import draw_region

        before = None if earlier is None or len(earlier.rates) != len(self.rates) else earlier.region.theory.vertices
        return draw_region(replace(self.region.picture(), earlier=before))

    def budget_figure(self) -> Any:
        """Return a matplotlib figure: capacity against the token budget, at the operating point's mix."""
        return self.plan.figure()

    def to_dict(self) -> dict[str, Any]:
        """Return settings, region, plan and the judgement of the operating point as plain data."""
        judged = {"load": self.load, "inside": self.inside, "headroom": self.headroom, "binding": self.binding}
        return {
            "settings": asdict(self.settings),
            **judged,
            "reason": self.reason,
            "facts": [list(row) for row in self.facts()],
            "region": self.region.to_dict(),
            "plan": self.plan.to_dict(),
        }


def explore(settings: Settings) -> Explored:
    """Return region, operating point, binding constraint, tile and flags for what the controls say.

    Answers are kept: the same settings again, or the same with other rates, cost little.

    Raises
    ------
    InputError
        In one line, to be shown in place of the answer (a model that does not fit, a limit that nothing meets).

    Examples
    --------
    >>> answer = explore(Settings(gpu="rtx-4090", rates=(2.0, 0.8), tbt_s=0.03))
    >>> answer.inside, answer.plan.token_budget > 0
    (True, True)
    """
    shape = _region(settings.with_(rates=None, ttft_s=None, engine="vllm"))
    count = len(shape.theory.names)
    rates = _half_way(shape) if settings.rates is None else settings.rates
    if len(rates) != count:
        raise InputError(f"rates are {list(rates)}; expected {count} numbers of 0 or more, one a class")
    if shape.at != rates:
        shape = replace(shape, at=rates)
    full = settings.with_(rates=rates)
    return Explored(full, shape, _bound(full), _plan(full))


def _half_way(shape: Region) -> tuple[float, ...]:
    equal = [1.0] * len(shape.theory.names)
    return tuple([float(f"{0.5 / shape.theory.load(equal):.3g}")] * len(equal))


def _asked(settings: Settings) -> dict[str, Any]:
    """Return the settings under the names of `tileq.plan` and `tileq.region`."""
    same = ("gpu", "model", "tp", "nodes", "dtype", "kv_dtype", "memory_utilisation", "max_num_seqs", "max_tokens")
    return {**{name: getattr(settings, name) for name in same}, "tbt": settings.tbt_s}


@lru_cache(maxsize=_KEPT)
def _region(settings: Settings) -> Region:
    return region(settings.classes, **_asked(settings))


@lru_cache(maxsize=_KEPT)
def _bound(settings: Settings) -> Capacity:
    theory = _region(settings.with_(rates=None, ttft_s=None, engine="vllm")).theory
    assert settings.rates is not None
    return capacity(theory.time, Demand.mix(theory.demands, np.array(_shares(settings.rates))), theory.limits)


@lru_cache(maxsize=_KEPT)
def _plan(settings: Settings) -> Plan:
    assert settings.rates is not None
    return plan(
        classes=_mixed(settings.classes, settings.rates),
        engine=settings.engine,
        ttft=settings.ttft_s,
        **_asked(settings),
    )


def _mixed(classes: Sequence[str], rates: Sequence[float]) -> list[RequestClass]:
    """Return the classes with the operating point's shares."""
    from tileq_theory.request_class import parse_class

    return [replace(parse_class(text), share=share) for text, share in zip(classes, _shares(rates), strict=True)]


def _shares(rates: Sequence[float]) -> Sequence[float]:
    """Return the operating point's mix, equal shares where nothing is asked for."""
    return rates if any(rates) else [1.0] * len(rates)
