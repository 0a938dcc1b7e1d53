"""A logit that is not finite: whose it is, and in which layers it came about."""

from __future__ import annotations

__all__ = ["NonFiniteLogits", "check_finite"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tileq_theory.errors import TileqError

if TYPE_CHECKING:
    from tileq_engine.decoder.batch import FlatBatch


class NonFiniteLogits(TileqError, ArithmeticError):  # noqa: N818, what it is says more than Error
    """A request's logits are not finite; `request`, `finite_until` and `first_bad` say whose and where."""

    def __init__(self, request: Any, finite_until: str, first_bad: str, others: int) -> None:
        self.request = request
        self.finite_until = finite_until
        self.first_bad = first_bad
        more = f" ({others} more requests of the batch too)" if others else ""
        super().__init__(
            f"the logits of request {request} are not finite{more}: finite until {finite_until}, not from {first_bad} "
            "on; check those weights, or run in float32"
        )


def check_finite(decoder: Any, batch: FlatBatch, tokens: Sequence[int], requests: Sequence[Any]) -> None:
    """Raise `NonFiniteLogits` if `sample` has answered -1 for some row of `batch`.

    The iteration is run once more, with a look at every stage. That writes the same keys and values again, so the
    cache stays as it is.

    Parameters
    ----------
    decoder, batch
        What has just run.
    tokens
        What `sample` returned, on the host.
    requests
        Names of the requests whose logits were wanted, in that order.
    """
    bad = [i for i, token in enumerate(tokens) if token < 0]
    if not bad:
        return
    row = int(batch.last_rows[bad[0]])
    sequence = int((batch.query_start[1:] <= row).sum())
    stages = decoder.trace(batch, sequence)
    until = "the start"
    for name, value in stages:
        if not bool(torch.isfinite(value).all()):
            raise NonFiniteLogits(requests[bad[0]], until, name, len(bad) - 1)
        until = name
    raise NonFiniteLogits(requests[bad[0]], until, "a run that did not repeat itself", len(bad) - 1)
