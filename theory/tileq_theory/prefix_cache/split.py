r"""Conversations behind a router: how much of its own turns a node finds in its own cache.

Of R nodes each sees only what the router sends it. Two ways to send the turns of a conversation:

* **together** (session or prefix affinity): all turns to one node. A node with the share p of the conversations sees
  whole ones, at p times the rate: the law of `Conversations` at the node's own rate of turns. System prompts are held
  on every node, so R caches of C tokens find less than one of R C.
* **apart** (random, round robin, by load): every turn goes to the node with probability p, whatever the turns before
  it did. This module's law; exact for random routing, and close for others once the turns of a conversation are far
  apart beside those of all conversations.

**Apart.** Let q = 1 - p, g = 1 - 1/m the probability that a conversation goes on, theta the mean gap of its turns. From
one visit to a node the next is i turns later with probability g^i q^(i-1) p, so a conversation comes back at all with
g' = g p/(1 - g q), and the sum of a geometric number of exponential gaps is exponential: seen from a node,
conversations are again geometric with exponential gaps,

    m' = 1/(1 - g') = 1 + (m - 1) p      mean visits of those that come at all
    theta' = theta/(1 - g q) = theta m/m'      mean gap between two visits
    nu' = nu p m/m'      rate of conversations that come at all (turns: nu' m' = nu m p)

What differs is the tokens: a visit at turn k finds the history up to the last turn k - i that came here, tokens of
turns k - i + 1, ..., k - 1 were computed elsewhere,

    P(last visit was i turns ago, within reach T | turn k) = p q^(i-1) P(Erlang(i, theta) <= T),    i = 1, ..., k - 1
    found = s + (k - i)(u + a)                                                      (less an answer not kept)

and else the system prompt with probability 1 - V_j(T), V_j that of `Conversations` with nu', m', theta'. In an infinite
cache a later turn finds *some* history with probability 1 - q^(k-1), about k p for many nodes, and after many turns it
lacks 1/p - 1 turns of it on average.

**Reach.** A visit at turn k touches k (u + a) tokens besides the system prompt, and none of them again within t with
probability 1 - g' + g' exp(-t/theta'), whatever k. With E[k] = m over all turns and lambda the node's rate of turns,

    W(T) = s sum_j (1 - V_j(T)) + lambda m (u + a) (T/m' + (1 - 1/m') theta' (1 - exp(-T/theta'))),    W(T_C) = C.

At p = 1 all of it is the law of `Conversations`. Apart, a node stores lambda m (u + a)/m' new tokens a second, up to m
times as many as together: every node of a long conversation's way keeps a copy of its history.
"""

from __future__ import annotations

__all__ = ["SplitConversations", "at_node"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, positive
from tileq_theory.prefix_cache.conversations import ConversationHits, Conversations, reach_of

_RARE = 1e-12  # probability below which further turns ago are left out


def at_node(talks: Conversations, share: float, *, together: bool) -> Conversations | SplitConversations:
    """Return the law of what a node sees that is sent the share `share` of the turns; its rates are the node's own.

    Examples
    --------
    >>> chat = Conversations(turns=4, system_tokens=1000, user_tokens=100, answer_tokens=200, think_s=60.0)
    >>> [round(at_node(chat, 1 / 8, together=kept).hits(None).hit_share, 3) for kept in (True, False)]
    [0.95, 0.664]
    """
    return talks if together or share == 1 else SplitConversations(talks, share)


@dataclass(frozen=True, slots=True)
class SplitConversations:
    """What a node sees of conversations whose turns are sent to it with probability `share` each (the module's law).

    Parameters
    ----------
    talks
        The conversations as users hold them.
    share
        p, in (0, 1].
    """

    talks: Conversations
    share: float

    def __post_init__(self) -> None:
        if not 0 < positive("share", self.share) <= 1:
            raise InputError(f"share is {self.share!r}; expected a share of the turns above 0 and at most 1")

    @property
    def turns(self) -> float:
        """m', mean visits of a conversation that comes to the node at all."""
        return 1 + (self.talks.turns - 1) * self.share

    @property
    def think_s(self) -> float:
        """theta', mean gap between two visits, seconds."""
        return self.talks.think_s * self.talks.turns / self.turns

    @property
    def prompt_tokens(self) -> float:
        """Mean prompt of a turn; splitting does not change it."""
        return self.talks.prompt_tokens

    def _unseen(self, reach_s: float, turns_per_s: float) -> Float[np.ndarray, "prompt"]:
        """Return V_j(T)."""
        back = -math.expm1(-reach_s / self.think_s)
        visits = turns_per_s / self.turns * self.talks.popularity
        found: np.ndarray = np.exp(-visits * (reach_s + (self.turns - 1) * self.think_s * back))
        return found

    def working_set_tokens(self, reach_s: float, turns_per_s: float) -> float:
        """Return W(T), distinct tokens that the node touches in T seconds at its rate of turns."""
        t, later = self.talks, 1 - 1 / self.turns
        back = -math.expm1(-reach_s / self.think_s)
        touched = t.turns * (t.user_tokens + t.answer_tokens) - (0.0 if t.cache_answers else t.answer_tokens)
        own = touched * (reach_s / self.turns + later * self.think_s * back)
        return float(t.system_tokens * (1 - self._unseen(reach_s, turns_per_s)).sum() + turns_per_s * own)

    def reach_s(self, cache_tokens: float, turns_per_s: float) -> float:
        """Return the characteristic time T with W(T) = C, seconds."""
        positive("turns_per_s", turns_per_s)
        return reach_of(lambda span: self.working_set_tokens(span, turns_per_s), cache_tokens, self.think_s)

    def shared_tokens(self, residents: float) -> float:
        """Return the tokens of a turn's system prompt that N turns resident together save by holding each once."""
        return self.talks.shared_tokens(residents)

    def turn_law(
        self, reach_s: float, turns_per_s: float
    ) -> tuple[Float[np.ndarray, "case"], Float[np.ndarray, "case"], Float[np.ndarray, "case"]]:
        """Return prompt tokens, found tokens and probability of each case: turn, turns since the last visit.

        Behind those with a visit within reach stand, for each turn, the system prompt alone and nothing.
        """
        prompt, share = self.talks.turn_prompts()
        count = prompt.size
        ago = np.arange(1, max(2, min(count, self._longest())), dtype=float)
        within = self.share * (1 - self.share) ** (ago - 1) * _erlang(ago, reach_s / self.talks.think_s)
        turn = np.arange(1, count + 1)
        k, i = (grid.ravel() for grid in np.meshgrid(turn, ago, indexing="ij"))
        is_one = i < k
        k, i = k[is_one], i[is_one]
        chance = (share[:, None] * within[None, :]).ravel()[is_one]
        found = np.minimum(self.talks.kept_tokens(k - i + 1), prompt[k - 1] - 1)
        seen = np.minimum(np.concatenate([[0.0], np.cumsum(within)]), 1.0)[np.minimum(turn - 1, ago.size)]
        system = self._system_hit(reach_s, turns_per_s)
        alone = np.minimum(np.full(count, self.talks.system_kept), prompt - 1)
        return (
            np.concatenate([prompt[k - 1], prompt, prompt]),
            np.concatenate([found, alone, np.zeros(count)]),
            np.concatenate([chance, share * (1 - seen) * system, share * (1 - seen) * (1 - system)]),
        )

    def _longest(self) -> int:
        """Return the number of turns ago beyond which a last visit is too rare to matter."""
        missed = 1 - self.share
        return 2 if missed == 0 else math.ceil(math.log(_RARE) / math.log(missed)) + 2

    def _system_hit(self, reach_s: float, turns_per_s: float) -> float:
        if math.isinf(reach_s):
            return 1.0
        found = float(self.talks.popularity @ (1 - self._unseen(reach_s, turns_per_s)))
        return min(1.0, found)  # popularities add up to 1 but for rounding

    def hits(self, cache_tokens: float | None, turns_per_s: float | None = None) -> ConversationHits:
        """Return what a cache of C tokens on the node serves of a mean turn; None: infinite.

        Parameters
        ----------
        cache_tokens
            C.
        turns_per_s
            The node's own rate of turns; needed with a finite cache.
        """
        if cache_tokens is not None and turns_per_s is None:
            raise InputError("turns_per_s is not given; a finite cache forgets in time, so it needs the rate of turns")
        rate = 1.0 if turns_per_s is None else positive("turns_per_s", turns_per_s)
        reach = math.inf if cache_tokens is None else self.reach_s(cache_tokens, rate)
        _, found, chance = self.turn_law(reach, rate)
        count = self.talks.turn_prompts()[0].size
        history = float(chance[: -2 * count].sum()) if self.talks.turns > 1 else 0.0
        system = self._system_hit(reach, rate)
        later = 1 - 1 / self.talks.turns
        return ConversationHits(
            reach,
            self.prompt_tokens,
            float(found @ chance),
            history + (1 - history) * system,
            history / later if later > 0 else 0.0,
        )


def _erlang(shape: Float[np.ndarray, "shape"], span: float) -> Float[np.ndarray, "shape"]:
    """Return P(Erlang(i, 1) <= span)."""
    from scipy.special import gammainc

    if math.isinf(span):
        return np.ones(shape.size)
    return np.asarray(gammainc(shape, span))
