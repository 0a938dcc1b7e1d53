"""Batch rules of the exact chain: who may join at an iteration boundary, and who decodes.

A rule sees how many requests wait and how many decode and makes an `Offer`. Prompts enter whole (one chunk) in order of
arrival, head of line: the first that does not fit stops those behind it.
"""

from __future__ import annotations

__all__ = ["BatchRule", "DecodeFirst", "Offer", "PrefillFirst", "RadRule", "ThresholdRule"]

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tileq_theory.errors import InputError, positive_int


@dataclass(frozen=True, slots=True)
class Offer:
    """What an iteration may take in.

    Parameters
    ----------
    prefills
        Most prompts that may join.
    tokens
        Prompt tokens that may join (inf: no limit).
    mixes
        True when residents decode in the same iteration as prompts are prefilled. Without a prompt they always decode.
    charged_tokens
        Tokens the linear layers are charged for when prompts join; None: as many as there are.
    """

    prefills: int
    tokens: float = math.inf
    mixes: bool = True
    charged_tokens: int | None = None


class BatchRule(ABC):
    """One policy of the chain."""

    __slots__ = ()

    @abstractmethod
    def offer(self, waiting: int, decoding: int, residents: int) -> Offer:
        """Return what the next iteration may take in; `residents` is the cap on requests being served."""

    @abstractmethod
    def token_limit(self) -> float:
        """Return the longest prompt that the rule can ever take in, tokens."""

    def prefill_limit(self, residents: int) -> int:
        """Return the most prompts that one iteration can take in."""
        return residents


@dataclass(frozen=True, slots=True)
class DecodeFirst(BatchRule):
    """All residents decode in every iteration; whole prompts join them while the budget lasts (Sarathi-like, mixed).

    Where the budget never cuts a prompt this is Sarathi-Serve, vLLM v1 and SLAI with every decode critical.

    Parameters
    ----------
    token_budget
        b_max, tokens of an iteration (None: no limit). Decodes are never held back by it.
    max_prefills
        Most prompts an iteration takes in (None: no limit but the residents' cap).
    """

    token_budget: int | None = None
    max_prefills: int | None = None

    def __post_init__(self) -> None:
        _limits(self.token_budget, self.max_prefills)

    def offer(self, waiting: int, decoding: int, residents: int) -> Offer:
        """Return the free slots and the budget that decodes leave."""
        slots = min(residents - decoding, self.prefill_limit(residents))
        return Offer(slots, math.inf if self.token_budget is None else self.token_budget - decoding)

    def token_limit(self) -> float:
        """Return the budget: an empty batch leaves all of it."""
        return math.inf if self.token_budget is None else self.token_budget

    def prefill_limit(self, residents: int) -> int:
        """Return min(residents, max_prefills)."""
        return residents if self.max_prefills is None else min(residents, self.max_prefills)


@dataclass(frozen=True, slots=True)
class PrefillFirst(BatchRule):
    """A prompt that fits is prefilled before anybody decodes, in a batch of prompts alone (vLLM v0).

    Parameters
    ----------
    token_budget, max_prefills
        As for `DecodeFirst`; the whole budget is the prompts'.
    """

    token_budget: int | None = None
    max_prefills: int | None = None

    def __post_init__(self) -> None:
        _limits(self.token_budget, self.max_prefills)

    def offer(self, waiting: int, decoding: int, residents: int) -> Offer:
        """Return the free slots and the budget; nobody decodes beside a prefill."""
        slots = min(residents - decoding, self.prefill_limit(residents))
        return Offer(slots, math.inf if self.token_budget is None else self.token_budget, mixes=False)

    def token_limit(self) -> float:
        """Return the budget."""
        return math.inf if self.token_budget is None else self.token_budget

    def prefill_limit(self, residents: int) -> int:
        """Return min(residents, max_prefills)."""
        return residents if self.max_prefills is None else min(residents, self.max_prefills)


@dataclass(frozen=True, slots=True)
class RadRule(BatchRule):
    """RAD (Algorithm 1, endless cycle): decode when b_col requests decode or none waits, else prefill the oldest.

    The cap on residents is b_col. A prefill is charged as a full tile.

    Parameters
    ----------
    tile_tokens
        b_lcm, tokens of the prefill tile; a prompt of the chain fits one tile.
    """

    tile_tokens: int

    def __post_init__(self) -> None:
        positive_int("tile_tokens", self.tile_tokens)

    def offer(self, waiting: int, decoding: int, residents: int) -> Offer:
        """Return one prompt, alone, while fewer than b_col decode."""
        return Offer(min(residents - decoding, 1), self.tile_tokens, mixes=False, charged_tokens=self.tile_tokens)

    def token_limit(self) -> float:
        """Return the tile."""
        return self.tile_tokens

    def prefill_limit(self, residents: int) -> int:
        """Return 1."""
        return 1


@dataclass(frozen=True, slots=True)
class ThresholdRule(BatchRule):
    """Exclusive batches with a threshold (THETA): decode until k slots are free, then prefill those that wait.

    With k = residents it is static batching: the next batch starts when the last of this one is done.

    Parameters
    ----------
    free_slots
        k, whole, 1 to the cap on residents.
    max_prefills
        Most prompts of a prefill phase (None: all that fit; k in the paper's THETA).
    """

    free_slots: int
    max_prefills: int | None = None

    def __post_init__(self) -> None:
        positive_int("free_slots", self.free_slots)
        _limits(None, self.max_prefills)

    def offer(self, waiting: int, decoding: int, residents: int) -> Offer:
        """Return the free slots once there are k of them, else none."""
        if self.free_slots > residents:
            raise InputError(
                f"free_slots is {self.free_slots} of {residents} residents; expected no more than there are"
            )
        free = residents - decoding
        most = min(free, self.prefill_limit(residents))
        return Offer(most if free >= self.free_slots else 0, mixes=False)

    def prefill_limit(self, residents: int) -> int:
        """Return min(residents, max_prefills)."""
        return residents if self.max_prefills is None else min(residents, self.max_prefills)

    def token_limit(self) -> float:
        """Return inf: the threshold rule has no token budget."""
        return math.inf


def _limits(token_budget: int | None, max_prefills: int | None) -> None:
    """Refuse limits that are given and not whole numbers of at least 1."""
    for name, value in (("token_budget", token_budget), ("max_prefills", max_prefills)):
        if value is not None and positive_int(name, value) != value:
            raise InputError(f"{name} is {value!r}; expected a whole number")
