r"""Random streams of an experiment: one for each purpose and replication, the same for every policy and rate.

A stream is `SeedSequence(seed, spawn_key=(purpose, replication))`, so that what a policy draws for itself cannot
shift the arrivals, and a longer run sees the same first requests. Two policies at one rate get identical requests;
one policy at two rates gets the same requests with their arrival moments divided by the rate: common random numbers.
"""

from __future__ import annotations

__all__ = ["Streams", "crn_requests"]

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileq_theory.errors import InputError, positive, positive_int

_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Streams:
    """The random streams of one replication.

    Examples
    --------
    >>> a, b = Streams(7, 0), Streams(7, 0)
    >>> bool(a.rng("arrivals").random() == b.rng("arrivals").random())
    True
    >>> bool(a.rng("arrivals").random() == a.rng("lengths").random())
    False
    """

    seed: int
    replication: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed is {self.seed!r}; expected a whole number that is 0 or more")
        if self.replication < 0:
            raise InputError(f"replication is {self.replication!r}; expected 0 or more")

    def sequence(self, purpose: str) -> np.random.SeedSequence:
        """Return the seed sequence of a purpose ("arrivals", "lengths", "policy", ... any name)."""
        return np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(purpose.encode()), self.replication))

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a new generator at the start of the purpose's stream."""
        return np.random.default_rng(self.sequence(purpose))

    def integer(self, purpose: str) -> int:
        """Return a seed for code that takes a whole number: 63 bits of the purpose's stream."""
        return int(self.sequence(purpose).generate_state(1, np.uint64)[0] >> np.uint64(1))


def crn_requests(workload: Any, count: int, streams: Streams, rate_per_s: float | None = None) -> Any:
    """Return `Requests` of a `Workload` at a rate from the streams "arrivals" and "lengths <block>".

    Lengths and classes are drawn in blocks of 4096 requests with a stream each, so that a longer run has the first
    requests of a shorter one whatever the order in which a law draws. A class's promised TBT becomes its requests'
    limit.

    Parameters
    ----------
    workload
        A `tileq_theory.workload.Workload`.
    count
        Requests to draw.
    rate_per_s
        Arrival rate; None keeps the workload's own.
    """
    from tileq_engine.requests import Requests, check_span

    count = positive_int("count", count)
    timed = workload if rate_per_s is None else workload.with_rate(positive("rate_per_s", rate_per_s))
    if timed.arrivals is None:
        raise InputError("the workload has no arrival rate; give rate_per_s")
    moments = timed.arrivals.sample(streams.rng("arrivals"), count)
    check_span(moments, count, rate_per_s)
    untimed, names = workload.with_rate(1.0), ("prompt_tokens", "output_tokens", "class_index")
    blocks = [untimed.sample(streams.rng(f"lengths {k}"), _BLOCK) for k in range(-(-count // _BLOCK))]
    columns = {name: np.concatenate([getattr(b, name) for b in blocks])[:count] for name in names}
    limits = np.array([c.tbt_s or 0.0 for c in workload.classes])  # what a class was promised
    return Requests.from_arrays(
        arrival_s=moments,
        tenant=columns["class_index"],
        tbt_limit_s=limits[columns["class_index"]],
        **columns,
    )
