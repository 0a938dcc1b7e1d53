"""What a run observes beside its requests, if asked: its tenants' accounts, and what kept requests waiting."""

from __future__ import annotations

__all__ = ["BOTTLENECK_ARRAYS", "TENANT_ARRAYS", "Bottlenecks", "TenantRecord"]

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """What every tenant got, at the samples' iterations and in the end, and the longest time it got nothing.

    `prefilled_tokens` are prompt tokens computed for the first time, `delivered_tokens` output tokens, `present` the
    requests in the system, `waiting` those of them in the queue, `counter` the virtual counter. A tenant is starved
    from the end of the last iteration that held a token of it, or from the arrival of a request that finds no other of
    it in the system if that is later, to the beginning of the next iteration that does.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    prompt_price: float
    output_price: float
    prefilled_tokens: Int[np.ndarray, "sample tenant"]
    delivered_tokens: Int[np.ndarray, "sample tenant"]
    present: Int[np.ndarray, "sample tenant"]
    waiting: Int[np.ndarray, "sample tenant"]
    counter: Int[np.ndarray, "sample tenant"]
    end_prefilled_tokens: Int[np.ndarray, "tenant"]
    end_delivered_tokens: Int[np.ndarray, "tenant"]
    end_counter: Int[np.ndarray, "tenant"]
    starved_ps: Int[np.ndarray, "tenant"]
    starved_from_ps: Int[np.ndarray, "tenant"]


@dataclass(frozen=True, slots=True)
class Bottlenecks:
    """When requests waited and why: intervals in order of time, each with one cause (a place in `pressure.CAUSES`)."""

    cause: Int[np.ndarray, "interval"]
    begin_ps: Int[np.ndarray, "interval"]
    end_ps: Int[np.ndarray, "interval"]
    iterations: Int[np.ndarray, "interval"]
    waiting: Int[np.ndarray, "interval"]


TENANT_ARRAYS = tuple(f.name for f in fields(TenantRecord))[4:]
BOTTLENECK_ARRAYS = tuple(f.name for f in fields(Bottlenecks))
