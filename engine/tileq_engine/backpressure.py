"""Settings of admission under pressure: what to do when the queue or the cache is full, and how to hold TBT."""

from __future__ import annotations

__all__ = ["ACTIONS", "Backpressure", "TbtControl"]

from dataclasses import dataclass
from typing import Literal

from tileq_engine.clock import to_ps
from tileq_theory.errors import InputError, finite, positive, positive_int

Action = Literal["hold", "shrink", "reject", "reroute"]
ACTIONS: tuple[Action, ...] = ("hold", "shrink", "reject", "reroute")


@dataclass(frozen=True, slots=True)
class Backpressure:
    """What is done while at least `waiting` requests wait, or at least the share `kv_share` of the blocks is used.

    Parameters
    ----------
    action
        "hold": arrivals wait, as without it; "shrink": the token budget is `shrunk_tokens` while it lasts; "reject":
        who arrives meanwhile is rejected (reason "backpressure"); "reroute": as reject, with the reason "rerouted",
        which a cluster's router takes up and sends elsewhere.
    waiting
        Requests waiting from which on there is pressure; None: however many.
    kv_share
        Share of the KV blocks used from which on there is pressure, in (0, 1]; None: however full.
    shrunk_tokens
        Budget under pressure, for "shrink"; None: half of the budget.

    Examples
    --------
    >>> Backpressure("reject", waiting=64).code
    2
    """

    action: Action = "hold"
    waiting: int | None = None
    kv_share: float | None = None
    shrunk_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise InputError(f"backpressure is {self.action!r}; expected one of {', '.join(ACTIONS)}")
        if self.waiting is not None:
            positive_int("backpressure's waiting", self.waiting)
        if self.kv_share is not None and not 0 < finite("backpressure's kv_share", self.kv_share) <= 1:
            raise InputError(f"backpressure's kv_share is {self.kv_share!r}; expected a share above 0 and at most 1")
        if self.shrunk_tokens is not None:
            positive_int("backpressure's shrunk_tokens", self.shrunk_tokens)
            if self.action != "shrink":
                raise InputError(f"shrunk_tokens is given, but backpressure is {self.action!r}; expected 'shrink'")
        if self.action != "hold" and self.waiting is None and self.kv_share is None:
            raise InputError(
                f"backpressure {self.action!r} has no trigger; give waiting (requests) or kv_share (of the blocks)"
            )

    @property
    def code(self) -> int:
        """The action as the kernels know it."""
        return ACTIONS.index(self.action)


@dataclass(frozen=True, slots=True)
class TbtControl:
    """The controller of the token budget.

    The budget of the next iteration is that with which it would take `margin` of the limit, by a line through the
    (tokens, time) of the last ones, each weighing `forget` times the one after it. It needs no model of the machine.

    Parameters
    ----------
    tbt_s
        Limit of the gaps between a request's tokens, seconds.
    least_tokens, most_tokens
        Bounds of the budget; None: one token a possible resident, and the budget of the settings times 16.
    margin
        Share of the limit that is aimed at, in (0, 1].
    forget
        In (0, 1).
    """

    tbt_s: float
    least_tokens: int | None = None
    most_tokens: int | None = None
    margin: float = 0.95
    forget: float = 0.95

    def __post_init__(self) -> None:
        positive("control's tbt_s", self.tbt_s)
        to_ps("control's tbt_s", self.tbt_s)
        for name in ("least_tokens", "most_tokens"):
            if getattr(self, name) is not None:
                positive_int(f"control's {name}", getattr(self, name))
        if self.least_tokens is not None and self.most_tokens is not None and self.least_tokens > self.most_tokens:
            raise InputError(
                f"control's least_tokens is {self.least_tokens}, above its most_tokens, {self.most_tokens}; expected "
                "at most that many"
            )
        if not 0 < finite("control's margin", self.margin) <= 1:
            raise InputError(f"control's margin is {self.margin!r}; expected a share above 0 and at most 1")
        if not 0 < finite("control's forget", self.forget) < 1:
            raise InputError(f"control's forget is {self.forget!r}; expected a number between 0 and 1")
