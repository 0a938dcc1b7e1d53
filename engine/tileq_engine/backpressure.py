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
        if not isinstance(self.action, str) or self.action not in ACTIONS:
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

    The budget is moved so that a full iteration takes what is aimed at, by a line through the (tokens, time) of the
    last iterations, each weighing `forget` times the one after it; no model of the machine is needed. The aim starts at
    .9 of the limit T. An iteration over the limit multiplies it by 1 - g (1 - x), one within by 1 + g x, up to T, with
    g the `gain` and x what may `exceed`. So if a is the least that the aim comes to, of N iterations with decodes at
    most

        V = (ln(.9 T/a) + N ln(1 + g x)) / (ln(1 + g x) - ln(1 - g (1 - x)))

    are over the limit: a share of about x, and ln(.9 T/a)/g more in all. Where decodes alone take longer than the limit
    no budget helps, and a falls without end.

    Parameters
    ----------
    tbt_s
        Limit of the gaps between a request's tokens, seconds.
    least_tokens, most_tokens
        Bounds of the budget; None: the settings' budget is the most, and a token a possible resident the least.
    exceed
        Share of the iterations that may take longer than the limit, in (0, 1).
    gain
        How far the aim falls with an iteration over the limit, in (0, 1).
    forget
        In (0, 1).
    """

    tbt_s: float
    least_tokens: int | None = None
    most_tokens: int | None = None
    exceed: float = 0.01
    gain: float = 0.05
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
        for name in ("exceed", "gain", "forget"):
            value = getattr(self, name)
            if not 0 < finite(f"control's {name}", value) < 1:
                raise InputError(f"control's {name} is {value!r}; expected a number between 0 and 1")
