r"""A synthetic workload with something to share: conversations of several turns under common system prompts.

Sessions begin as a Poisson process. Each takes one of `system_prompts` system prompts (number k with probability
proportional to k^-zipf) and has a geometric number of turns. The prompt of a turn is the system prompt, all earlier
turns with their answers, and what the user writes now:

    P_k = system + sum_{j < k} (user_j + answer_j) + user_k,    O_k = answer_k

The next turn comes an exponential think time after this one came (not after it was answered, so that the requests
are the same under every policy and rate). Blocks that lie whole in the system prompt are shared by all sessions that
have it, later ones by the turns of a session. The start is stationary: sessions that began before 0 are in it.
"""

from __future__ import annotations

__all__ = ["Conversations"]

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.experiment_streams import Streams
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.requests import Requests, check_span
from tileq_theory.errors import InputError, boolean, nonnegative, nonnegative_int, positive, positive_int
from tileq_theory.lengths import Fixed, LengthLaw

_SESSIONS = 1024  # drawn at a time, each lot from a stream of its own
_MOST_TURNS, _MOST_PROMPTS = 10_000, 1_000_000  # of a session, of all: what a lot's arrays hold
_MOST_PAST = 20_000_000  # turns that are drawn to find those of sessions begun before 0
_PAST = 12.0  # mean lengths of a session for which one that began before 0 is followed: exp(-12) are left out


@dataclass(frozen=True, slots=True)
class Conversations:
    """Conversations of several turns under shared system prompts.

    Parameters
    ----------
    turns_mean
        Mean number of turns of a session, 1 or more (geometric).
    system_prompts
        Different system prompts.
    system_zipf
        Exponent of their popularity; 0: all alike.
    system_tokens
        Tokens of a system prompt; 0 for none.
    user_tokens, answer_tokens
        Tokens that a user writes and gets in a turn: a number, or a length law (`tileq_theory.lengths`).
    think_s
        Mean seconds between two turns of a session.
    block_tokens
        Tokens of a hashed block; a whole number of KV blocks.
    keep_answers
        Whether the blocks of an answer stay for the next turn, or only those of prompts do.

    Examples
    --------
    >>> asked = Conversations(turns_mean=3, system_tokens=64).requests(100, rate_per_s=2.0, seed=1)
    >>> len(asked), asked.blocks.block_tokens
    (100, 16)
    """

    turns_mean: float = 4.0
    system_prompts: int = 8
    system_zipf: float = 1.0
    system_tokens: int = 512
    user_tokens: LengthLaw | int = 64
    answer_tokens: LengthLaw | int = 256
    think_s: float = 30.0
    block_tokens: int = 16
    keep_answers: bool = True

    def __post_init__(self) -> None:
        if not positive("turns_mean", self.turns_mean) >= 1:
            raise InputError(f"turns_mean is {self.turns_mean!r}; expected 1 or more: a session has a first turn")
        for name in ("system_prompts", "block_tokens"):
            object.__setattr__(self, name, positive_int(name, getattr(self, name)))
        for name, most in (("turns_mean", _MOST_TURNS), ("system_prompts", _MOST_PROMPTS)):
            if getattr(self, name) > most:
                raise InputError(f"{name} is {getattr(self, name)!r}; expected at most {most}")
        object.__setattr__(self, "system_tokens", nonnegative_int("system_tokens", self.system_tokens))
        boolean("keep_answers", self.keep_answers)
        nonnegative("system_zipf", self.system_zipf)
        positive("think_s", self.think_s)
        for name in ("user_tokens", "answer_tokens"):
            given = getattr(self, name)
            if not isinstance(given, LengthLaw):
                object.__setattr__(self, name, Fixed(positive_int(name, given)))

    @property
    def popularity(self) -> Float[np.ndarray, "prompt"]:
        """Probability of each system prompt."""
        weight = np.arange(1, self.system_prompts + 1, dtype=float) ** -self.system_zipf
        return np.asarray(weight / weight.sum())

    def requests(self, count: int, *, rate_per_s: float, seed: int = 0, replication: int = 0) -> Requests:
        """Return the first `count` requests at a rate of requests (turns) a second."""
        return self.draw(positive_int("count", count), Streams(seed, replication), positive("rate_per_s", rate_per_s))

    def draw(self, count: int, streams: Streams, rate_per_s: float | None) -> Requests:
        """Return the first `count` requests of a replication; the same sessions, further apart, at a lower rate."""
        if rate_per_s is None:
            raise InputError("conversations have no rate of their own; give one")
        sessions = rate_per_s / self.turns_mean
        before = _PAST * self.turns_mean * self.think_s * rate_per_s
        if before > _MOST_PAST:
            raise InputError(
                f"conversations of {self.turns_mean:g} turns, {self.think_s:g} s apart, at {rate_per_s:g} requests/s "
                f"have some {before:.2g} turns before the first request; expected {_MOST_PAST:.0e} at most: lower "
                "think, turns or the rate"
            )
        check_span(count / rate_per_s, count, rate_per_s)
        past = _PAST * self.turns_mean * self.think_s * sessions  # sessions that began before 0 and may go on
        lots = range(-(-int(np.ceil(past)) // _SESSIONS))
        old = _Sessions.chained([self._sessions(streams, f"past sessions {lot}", -1.0 / sessions) for lot in lots])
        new, lot = _Sessions.empty(), 0
        while True:
            new = new.joined(self._sessions(streams, f"sessions {lot}", 1.0 / sessions))
            lot += 1
            all_of = old.joined(new, after_last=False)
            begun = float(new.begin_s[-1])  # until then every turn is known
            if int(np.sum((all_of.arrival_s >= 0) & (all_of.arrival_s <= begun))) >= count:
                return self._requests(all_of, count)

    def _sessions(self, streams: Streams, purpose: str, gap_s: float) -> _Sessions:
        """Draw a lot of sessions that begin `gap_s` apart on average (into the past, if negative)."""
        rng = streams.rng(purpose)
        begin = np.cumsum(rng.exponential(1.0, _SESSIONS)) * gap_s
        turns = rng.geometric(1.0 / self.turns_mean, _SESSIONS).astype(np.int64)
        system = rng.choice(self.system_prompts, size=_SESSIONS, p=self.popularity)
        total = int(turns.sum())
        first = np.repeat(np.cumsum(turns) - turns, turns)
        think = np.cumsum(rng.exponential(self.think_s, total))
        user = self.user_tokens.sample(rng, total)  # type: ignore[union-attr]
        answer = self.answer_tokens.sample(rng, total)  # type: ignore[union-attr]
        before = np.cumsum(user + answer) - user - answer
        return _Sessions(
            begin_s=begin,
            session=np.repeat(np.arange(_SESSIONS), turns),
            system=np.repeat(system.astype(np.int64), turns),
            arrival_s=np.repeat(begin, turns) + think - think[first],
            prompt=self.system_tokens + before - before[first] + user,
            output=answer,
        )

    def _requests(self, all_of: _Sessions, count: int) -> Requests:
        order = np.lexsort((all_of.prompt, all_of.arrival_s))
        order = order[all_of.arrival_s[order] >= 0][:count]
        prompt, output = all_of.prompt[order], all_of.output[order]
        return Requests.from_arrays(
            arrival_ps=np.rint(all_of.arrival_s[order] * PS_PER_S).astype(np.int64),
            prompt_tokens=prompt,
            output_tokens=output,
            blocks=self._blocks(prompt + output * self.keep_answers, all_of.session[order], all_of.system[order]),
        )

    def _blocks(
        self,
        tokens: Int[np.ndarray, "request"],
        session: Int[np.ndarray, "request"],
        system: Int[np.ndarray, "request"],
    ) -> BlockPaths:
        lengths = tokens // self.block_tokens
        edges = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        depth = np.arange(int(edges[-1])) - np.repeat(edges[:-1], lengths)
        own = np.repeat(session + self.system_prompts, lengths)
        common = depth < self.system_tokens // self.block_tokens
        ids = np.where(common, np.repeat(system, lengths), own)  # of equal depth and path: the rest is the chaining's
        return BlockPaths.of(ids, edges, self.block_tokens)

    def workload(self, sessions: int = 4096) -> Any:
        """Return the law of a turn's lengths as a `Workload`, from many sessions (it has no arrivals)."""
        from tileq_theory.provenance import Provenance
        from tileq_theory.workload import Workload

        drawn = _Sessions.empty()
        for lot in range(-(-positive_int("sessions", sessions) // _SESSIONS)):
            drawn = drawn.joined(self._sessions(Streams(0), f"law {lot}", 1.0))
        source = Provenance("assumed", f"synthetic conversations, {self.turns_mean:g} turns on average")
        return Workload.from_lengths(drawn.prompt, drawn.output, name="conversations", provenance=source)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as plain data."""
        names = (
            "turns_mean",
            "system_prompts",
            "system_zipf",
            "system_tokens",
            "think_s",
            "block_tokens",
            "keep_answers",
        )
        laws = {name: repr(getattr(self, name)) for name in ("user_tokens", "answer_tokens")}
        return {"kind": "conversations", **{name: getattr(self, name) for name in names}, **laws}


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Turns of some sessions, and when those began."""

    begin_s: Float[np.ndarray, "session"]
    session: Int[np.ndarray, "turn"]
    system: Int[np.ndarray, "turn"]
    arrival_s: Float[np.ndarray, "turn"]
    prompt: Int[np.ndarray, "turn"]
    output: Int[np.ndarray, "turn"]

    @staticmethod
    def empty() -> _Sessions:
        none = np.zeros(0, dtype=np.int64)
        return _Sessions(np.zeros(0), none, none, np.zeros(0), none, none)

    @staticmethod
    def chained(lots: list[_Sessions]) -> _Sessions:
        """Return all of them, the times of each counted from the last session of the one before on."""
        moved, shift, count = [_Sessions.empty()], 0.0, 0
        for lot in lots:
            begin, arrival = lot.begin_s + shift, lot.arrival_s + shift
            moved.append(replace(lot, begin_s=begin, session=lot.session + count, arrival_s=arrival))
            shift, count = float(begin[-1]), count + len(begin)
        return _Sessions(*(np.concatenate([getattr(part, f.name) for part in moved]) for f in fields(_Sessions)))

    def joined(self, other: _Sessions, *, after_last: bool = True) -> _Sessions:
        """Return these and the others, whose times count from the last of these on, or from 0."""
        shift = float(self.begin_s[-1]) if after_last and len(self.begin_s) else 0.0
        pair = np.concatenate
        return _Sessions(
            pair([self.begin_s, other.begin_s + shift]),
            pair([self.session, other.session + len(self.begin_s)]),
            pair([self.system, other.system]),
            pair([self.arrival_s, other.arrival_s + shift]),
            pair([self.prompt, other.prompt]),
            pair([self.output, other.output]),
        )
