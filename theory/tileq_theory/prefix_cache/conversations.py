r"""Conversations: how much of their prompts a cache serves, in closed form.

Sessions arrive as a Poisson process of rate nu and take a geometric number of turns of mean m, with exponential gaps
of mean theta between the arrivals of their turns. The prompt of turn k is the system prompt, the k - 1 turns so far
and the new words,

    P_k = s + (k - 1)(u + a) + u     (s system, u user, a answer tokens),

and each session uses one of J system prompts with probability w_j. Every law of ages is exact, for references to

* new words: infinite;
* the conversation so far, from turn 2 on: the gap since the turn before, P(age > t) = exp(-t/theta);
* a system prompt: that a window (-t, 0) holds no turn of any session with that prompt. Session starts are Poisson,
  and a session has a turn in the window when its start lies in a union of intervals of mean length t + (m - 1) theta
  (1 - exp(-t/theta)):

      V_j(t) = exp(-nu w_j (t + (m - 1) theta (1 - exp(-t/theta)))),
      P(age > t) = V_j(t) (1/m + (1 - 1/m) exp(-t/theta))                  (of the next turn; -V_j' over its rate).

Distinct tokens in a window of length t (what a least-recently-used cache holds, `reuse`), with n tokens new to a
session's first turn and h tokens of history held before each later one:

    W(t) = s sum_j (1 - V_j(t)) + nu (new tokens a session) t + nu (history tokens a session) theta (1 - exp(-t/theta))

and the cache of C tokens reaches back T with W(T) = C. The mean over sessions of sum_{k >= 2} (k - 1) is E[K(K -
1)/2] = m(m - 1).
"""

from __future__ import annotations

__all__ = ["ConversationHits", "Conversations", "reach_of"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative, positive, positive_int

_TAIL = 1e-13  # probability of the longest sessions left out of the joint law


@dataclass(frozen=True, slots=True)
class ConversationHits:
    """What a cache serves of a mean turn.

    Parameters
    ----------
    reach_s
        T: the cache holds what was touched within this time; inf for an infinite cache.
    prompt_tokens, hit_tokens
        Mean prompt of a turn, and how much of it is found.
    system_hit, history_hit
        Probability that a turn finds its system prompt, and that a later turn finds its history.
    """

    reach_s: float
    prompt_tokens: float
    hit_tokens: float
    system_hit: float
    history_hit: float

    @property
    def hit_share(self) -> float:
        """Share of prompt tokens that are found."""
        return self.hit_tokens / self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Conversations:
    """Multi-turn sessions with shared system prompts (see the module for the law).

    Parameters
    ----------
    turns
        m, mean turns of a session, at least 1.
    system_tokens, user_tokens, answer_tokens
        s (0 or more), u and a (above 0), tokens; u and a may be means.
    think_s
        theta, mean time between the arrivals of two turns of a session, seconds.
    system_prompts
        J, different system prompts.
    zipf
        Exponent of their popularity, w_j proportional to j^-zipf; 0: all alike.
    cache_answers
        Whether generated tokens stay in the cache for the next turn (engines keep them; traces of prompts do not tell).
    block_tokens
        Hits are whole blocks: a history of any length loses (b - 1)/2 tokens of them on average, the system prompt its
        remainder.

    Examples
    --------
    >>> chat = Conversations(turns=4, system_tokens=1000, user_tokens=100, answer_tokens=200, think_s=60.0)
    >>> found = chat.hits(None)
    >>> float(found.prompt_tokens), round(found.hit_share, 4)
    (2000.0, 0.95)
    """

    turns: float
    system_tokens: int
    user_tokens: float
    answer_tokens: float
    think_s: float
    system_prompts: int = 1
    zipf: float = 0.0
    cache_answers: bool = True
    block_tokens: int = 1

    def __post_init__(self) -> None:
        if positive("turns", self.turns) < 1:
            raise InputError(f"turns is {self.turns!r}; expected a mean of at least 1")
        for name in ("system_tokens", "zipf"):
            nonnegative(name, getattr(self, name))
        for name in ("user_tokens", "answer_tokens", "think_s"):
            positive(name, getattr(self, name))
        for name in ("system_prompts", "block_tokens"):
            positive_int(name, getattr(self, name))

    @property
    def popularity(self) -> Float[np.ndarray, "prompt"]:
        """w_j of each system prompt."""
        weight = np.arange(1, self.system_prompts + 1, dtype=float) ** -self.zipf
        return np.asarray(weight / weight.sum())

    @property
    def prompt_tokens(self) -> float:
        """Mean prompt of a turn: s + (m - 1)(u + a) + u."""
        return self.system_tokens + (self.turns - 1) * (self.user_tokens + self.answer_tokens) + self.user_tokens

    @property
    def system_kept(self) -> float:
        """Tokens of a system prompt that whole blocks hold."""
        return self.system_tokens // self.block_tokens * self.block_tokens

    def kept_tokens(self, turn: Float[np.ndarray, "turn"]) -> Float[np.ndarray, "turn"]:
        """Return the tokens of turn k that the turn before it has left behind, in whole blocks; for k = 1 none."""
        k = turn
        old = np.where(k < 2, 0.0, self.system_tokens + self._history(k) - (self.block_tokens - 1) / 2)
        return np.maximum(old, np.where(k < 2, 0.0, self.system_kept))

    def _history(self, turn: np.ndarray | float) -> np.ndarray:
        """Return the tokens beyond the system prompt that turn k can find of turn k - 1, before blocks are cut."""
        k = np.asarray(turn, dtype=float)
        both = self.user_tokens + self.answer_tokens
        return np.where(k < 2, 0.0, (k - 1) * both - (0.0 if self.cache_answers else self.answer_tokens))

    def working_set_tokens(self, reach_s: float, turns_per_s: float) -> float:
        """Return W(T), distinct tokens touched in a window of T seconds at a rate of turns per second."""
        sessions, m = positive("turns_per_s", turns_per_s) / self.turns, self.turns
        span = nonnegative("reach_s", reach_s)
        seen = -math.expm1(-span / self.think_s)
        empty = np.exp(-sessions * self.popularity * (span + (m - 1) * self.think_s * seen))
        words, answers = self.user_tokens, self.answer_tokens
        last = (
            answers if self.cache_answers else 0.0
        )  # the last answer of a session is kept too, though nobody asks for it
        new = m * words + (m - 1) * answers + last
        history = m * (m - 1) * (words + answers) - (0.0 if self.cache_answers else (m - 1) * answers)
        return float(self.system_tokens * (1 - empty).sum() + sessions * (new * span + history * self.think_s * seen))

    def reach_s(self, cache_tokens: float, turns_per_s: float) -> float:
        """Return the characteristic time T with W(T) = C, seconds."""
        return reach_of(lambda span: self.working_set_tokens(span, turns_per_s), cache_tokens, self.think_s)

    def hits(self, cache_tokens: float | None, turns_per_s: float | None = None) -> ConversationHits:
        """Return what a cache serves of a mean turn.

        Parameters
        ----------
        cache_tokens
            C, tokens; None: infinite, where the rate does not matter.
        turns_per_s
            Rate of turns over all sessions, requests per second; needed with a finite cache.
        """
        if cache_tokens is None:
            return self._at(math.inf, 1.0)
        if turns_per_s is None:
            raise InputError("turns_per_s is not given; a finite cache forgets in time, so it needs the rate of turns")
        return self._at(self.reach_s(cache_tokens, turns_per_s), turns_per_s)

    def shared_tokens(self, residents: float) -> float:
        """Return the tokens of a turn's system prompt that N turns resident together save by holding each prompt once.

        N turns of different sessions hold sum_j (1 - (1 - w_j)^N) system prompts instead of N.
        """
        together = max(residents, 1.0)
        different = float((1 - (1 - self.popularity) ** together).sum())
        return self.system_kept * (1 - different / together)

    def _at(self, reach_s: float, turns_per_s: float) -> ConversationHits:
        history_hit, system_hit = self._probabilities(reach_s, turns_per_s)
        tokens = self.turn_law(reach_s, turns_per_s)
        found = float(tokens[1] @ tokens[2])
        later = 1 - 1 / self.turns
        return ConversationHits(
            reach_s,
            self.prompt_tokens,
            found,
            later * (history_hit + (1 - history_hit) * system_hit) + (1 - later) * system_hit,
            history_hit if self.turns > 1 else 0.0,
        )

    def _probabilities(self, reach_s: float, turns_per_s: float) -> tuple[float, float]:
        """Return P(own turn before is within reach) and P(another session's with the same prompt is)."""
        if math.isinf(reach_s):
            return 1.0, 1.0
        seen = -math.expm1(-reach_s / self.think_s)
        per_s = turns_per_s / self.turns
        w = self.popularity
        empty = np.exp(-per_s * w * (reach_s + (self.turns - 1) * self.think_s * seen))
        return seen, min(1.0, float(w @ (1 - empty)))  # w adds up to 1 but for rounding

    def turn_prompts(self) -> tuple[Float[np.ndarray, "turn"], Float[np.ndarray, "turn"]]:
        """Return the prompt of turn k = 1, 2, ... and the share of turns that are a k-th one, (1 - 1/m)^(k-1)/m."""
        go_on = 1 - 1 / self.turns
        most = 1 if go_on == 0 else max(1, math.ceil(math.log(_TAIL) / math.log(go_on)))
        before = np.arange(most, dtype=float)
        share = go_on**before
        return self.system_tokens + before * (
            self.user_tokens + self.answer_tokens
        ) + self.user_tokens, share / share.sum()

    def turn_law(
        self, reach_s: float, turns_per_s: float
    ) -> tuple[Float[np.ndarray, "case"], Float[np.ndarray, "case"], Float[np.ndarray, "case"]]:
        """Return prompt tokens, found tokens and probability of each case: turn, and what of it is in the cache.

        The cases of a turn are: history found (and the system prompt with it), system prompt only, nothing.
        """
        history_hit, system_hit = self._probabilities(reach_s, turns_per_s)
        prompt, share = self.turn_prompts()
        turn = np.arange(1, prompt.size + 1, dtype=float)
        old = self.kept_tokens(turn)
        own = np.where(turn < 2, 0.0, history_hit)
        cases = [(old, own), (np.full_like(turn, self.system_kept), (1 - own) * system_hit)]
        cases.append((np.zeros_like(turn), (1 - own) * (1 - system_hit)))
        found = np.concatenate([np.minimum(tokens, prompt - 1) for tokens, _ in cases])
        return np.tile(prompt, 3), found, np.concatenate([share * chance for _, chance in cases])


def reach_of(working_set: Callable[[float], float], cache_tokens: float, first_s: float) -> float:
    """Return the time T with W(T) = C by bisection, from the guess `first_s`; W grows without end."""
    size = nonnegative("cache_tokens", cache_tokens)
    low, high = 0.0, first_s
    while working_set(high) < size:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if working_set(middle) < size else (low, middle)
    return high
