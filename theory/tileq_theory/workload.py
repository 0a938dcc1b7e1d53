"""A workload: request classes in a mix, and when their requests arrive."""

from __future__ import annotations

__all__ = ["RequestSample", "Workload"]

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.arrivals.base import ArrivalProcess
from tileq_theory.arrivals.poisson import Poisson
from tileq_theory.arrivals.trace import TraceArrivals
from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError
from tileq_theory.lengths.base import ChunkMoments, JointLaw, LengthLaw
from tileq_theory.lengths.checks import Numbers
from tileq_theory.lengths.joint_mixture import JointMixture
from tileq_theory.lengths.pairs import Pairs
from tileq_theory.provenance import Provenance
from tileq_theory.request_class import RequestClass


class RequestSample(NamedTuple):
    """Requests in the order of their arrival.

    Parameters
    ----------
    class_index
        Position of the request's class in `Workload.classes`.
    prompt_tokens, output_tokens
        Lengths, tokens.
    arrival_s
        Arrival times, seconds, never falling.
    """

    class_index: Int[np.ndarray, "request"]
    prompt_tokens: Int[np.ndarray, "request"]
    output_tokens: Int[np.ndarray, "request"]
    arrival_s: Float[np.ndarray, "request"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Classes, their mix and the arrival process of the whole.

    Parameters
    ----------
    classes
        At least one, with different names and shares that are not all 0.
    arrivals
        Arrivals of all classes together; each is of class i with probability `shares[i]`. None: no rate is known
        (`with_rate` makes it Poisson).
    name
        A name for tables.
    provenance
        Where the lengths came from.

    Raises
    ------
    InputError
        For no class, two of one name, or shares that are all 0.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed, Independent
    >>> short = RequestClass("short", Independent(Fixed(100), Fixed(100)), share=3)
    >>> long = RequestClass("long", Independent(Fixed(300), Fixed(100)), share=1)
    >>> Workload([short, long]).with_rate(2.0).demand(chunk_tokens=100).prefill_tokens
    150.0
    """

    classes: Sequence[RequestClass]
    arrivals: ArrivalProcess | None = None
    name: str = ""
    provenance: Provenance = field(default=Provenance("assumed"), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        if not self.classes:
            raise InputError("a workload of no classes was given; expected at least one")
        names = [c.name for c in self.classes]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InputError(f"class name {twice[0]!r} is used more than once; give each class its own")
        if not any(c.share > 0 for c in self.classes):
            raise InputError("class shares are all 0; expected at least one above 0")

    @classmethod
    def from_lengths(
        cls,
        prompts: Numbers,
        outputs: Numbers,
        arrivals: ArrivalProcess | Numbers | None = None,
        *,
        name: str = "",
        provenance: Provenance | None = None,
    ) -> Workload:
        """Return one class of recorded pairs, with arrivals given as a process or as times in seconds (any order)."""
        lengths = Pairs(prompts, outputs)
        if arrivals is not None and not isinstance(arrivals, ArrivalProcess):
            # the process keeps gaps only, so rows written at completion may stand in any order
            arrivals = TraceArrivals(np.sort(np.asarray(arrivals, dtype=float)))
        source = provenance or Provenance("measured", f"{lengths.prompts.size} recorded requests")
        return cls((RequestClass(name or "all", lengths),), arrivals, name, source)

    @property
    def shares(self) -> Float[np.ndarray, "class"]:
        """Share q_i of each class, summing to 1."""
        given = [c.share for c in self.classes]
        return np.array(given) / math.fsum(given)

    @property
    def lengths(self) -> JointLaw:
        """Joint law of the lengths of a request of any class."""
        if len(self.classes) == 1:
            return self.classes[0].lengths
        # in name order: rounding must not depend on the order in which classes were given
        ordered = sorted(self.classes, key=lambda c: c.name)
        return JointMixture([c.lengths for c in ordered], [c.share for c in ordered])

    @property
    def rate_per_s(self) -> float | None:
        """Arrivals a second of all classes together; None where no arrivals are known."""
        return None if self.arrivals is None else self.arrivals.rate_per_s

    def with_rate(self, rate_per_s: float) -> Workload:
        """Return the same workload at another rate: its arrivals on another clock, Poisson where it had none."""
        arrivals = Poisson(rate_per_s) if self.arrivals is None else self.arrivals.scaled_to(rate_per_s)
        return replace(self, arrivals=arrivals)

    def with_arrivals(self, arrivals: ArrivalProcess | None) -> Workload:
        """Return the same workload with another arrival process."""
        return replace(self, arrivals=arrivals)

    def demands(
        self, *, chunk_tokens: int, convention: TokenConvention = "engine", counting: ChunkCounting = "whole"
    ) -> tuple[Demand, ...]:
        """Return the demand of one request of each class, in the order of `classes`."""
        return tuple(
            c.lengths.demand(chunk_tokens=chunk_tokens, convention=convention, counting=counting) for c in self.classes
        )

    def demand(
        self, *, chunk_tokens: int, convention: TokenConvention = "engine", counting: ChunkCounting = "whole"
    ) -> Demand:
        """Return the demand of one request of the mix."""
        each = self.demands(chunk_tokens=chunk_tokens, convention=convention, counting=counting)
        return Demand.mix(each, [c.share for c in self.classes])

    def demand_by_chunk(
        self,
        chunk_tokens: Int[np.ndarray, "chunk"],
        *,
        convention: TokenConvention = "engine",
        counting: ChunkCounting = "whole",
    ) -> ChunkMoments:
        """Return g and u of a request of the mix at every chunk size of an array."""
        return self.lengths.demand_by_chunk(chunk_tokens, convention=convention, counting=counting)

    def sample(self, rng: np.random.Generator, count: int) -> RequestSample:
        """Return `count` requests: class, lengths and arrival times.

        Classes are drawn in the order of their names, so that the same generator gives the same requests in
        whatever order the classes were listed.

        Raises
        ------
        InputError
            When the workload has no arrivals.
        """
        if self.arrivals is None:
            raise InputError("this workload has no arrival process; set a rate first (with_rate, or --rate)")
        arrival_s = self.arrivals.sample(rng, count)
        order = sorted(range(len(self.classes)), key=lambda i: self.classes[i].name)
        index = np.array(order)[rng.choice(len(order), count, p=self.shares[order])]
        prompts, outputs = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        for i in order:
            chosen = index == i
            prompts[chosen], outputs[chosen] = self.classes[i].lengths.sample(rng, int(chosen.sum()))
        return RequestSample(index, prompts, outputs, arrival_s)

    def describe(self) -> str:
        """Return one short line for tables and provenance."""
        alone = len(self.classes) == 1  # a single class needs no name beside the workload's
        parts = [c.lengths.describe() if alone else f"{c.name}: {c.lengths.describe()}" for c in self.classes]
        when = "no arrivals" if self.arrivals is None else self.arrivals.describe()
        return f"{self.name + ': ' if self.name else ''}{' | '.join(parts)}; {when}"

    def to_dict(self) -> dict[str, object]:
        """Return means, quantiles, correlation, mix and arrivals as plain data that JSON can hold."""
        return {
            "name": self.name,
            "description": self.describe(),
            "rate_per_s": self.rate_per_s,
            "arrivals": None if self.arrivals is None else _arrivals_dict(self.arrivals),
            "lengths": _lengths_dict(self.lengths),
            "classes": [
                {
                    "name": c.name,
                    "share": float(share),
                    "tbt_s": c.tbt_s,
                    "ttft_s": c.ttft_s,
                    "lengths": _lengths_dict(c.lengths),
                }
                for c, share in zip(self.classes, self.shares, strict=True)
            ],
            "provenance": self.provenance.to_dict(),
        }


def _arrivals_dict(arrivals: ArrivalProcess) -> dict[str, object]:
    return {
        "description": arrivals.describe(),
        "rate_per_s": arrivals.rate_per_s,
        "scv": arrivals.scv,
        "dispersion": arrivals.dispersion,
    }


def _lengths_dict(law: JointLaw) -> dict[str, object]:
    return {
        "prompt_tokens": _law_dict(law.prompt_law),
        "output_tokens": _law_dict(law.output_law),
        "correlation": law.correlation(),
        "longest_context_tokens": _or_none(law.longest_context),
    }


def _law_dict(law: LengthLaw) -> dict[str, object]:
    p50, p90, p99 = (float(q) for q in law.quantile(np.array([0.5, 0.9, 0.99])))
    return {"mean": law.mean(), "p50": p50, "p90": p90, "p99": p99, "max": _or_none(law.longest)}


def _or_none(tokens: float) -> float | None:
    """Return the number, or None for an unbounded law: JSON has no infinity."""
    return tokens if math.isfinite(tokens) else None
