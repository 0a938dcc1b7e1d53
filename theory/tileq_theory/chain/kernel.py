r"""One iteration of the chain, before arrivals: a sparse table of outcomes.

State at an iteration boundary: (w, phase), w requests waiting and the phase = (counts of decoding requests per
decode phase, length of the head of the queue where it is known because it did not fit). An outcome of (w, phase) is
(admitted a, next phase, duration, probability); the next level is w - a + A, A arrivals during the duration.

From w >= `depth` the outcomes no longer depend on w: the queue is never exhausted by one iteration.
"""

from __future__ import annotations

__all__ = ["Kernel", "Phase", "build_kernel"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.chain.population import Counts, Population
from tileq_theory.chain.rules import Offer
from tileq_theory.chain.system import ChainSystem
from tileq_theory.errors import InputError

_MOST_PHASES = 4000


@dataclass(frozen=True, slots=True, order=True)
class Phase:
    """Decoding requests per decode phase, and the head's prompt length (0 where not known)."""

    counts: Counts
    head_tokens: int = 0

    @property
    def decoding(self) -> int:
        """Number of decoding requests."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """All outcomes, one a row, for the levels 0 to `depth`.

    Parameters
    ----------
    phases
        What each phase number stands for; phase 0 is the empty node.
    depth
        The first level whose outcomes are those of all higher levels.
    level, phase, admitted, after, duration, probability
        Columns of the table: from (level, phase), a prompts join, the phase after, the index of the duration.
        Level 0 of phase 0 (idle) has no row: it waits for an arrival.
    stepped
        1 where the residents decode in the iteration.
    law
        Number of the law of the phase after: rows of one number share it, whatever level they start from.
    durations_s
        Mean iteration lengths, seconds.
    """

    phases: tuple[Phase, ...]
    depth: int
    level: Int[np.ndarray, "row"]
    phase: Int[np.ndarray, "row"]
    admitted: Int[np.ndarray, "row"]
    after: Int[np.ndarray, "row"]
    duration: Int[np.ndarray, "row"]
    probability: Float[np.ndarray, "row"]
    stepped: Int[np.ndarray, "row"]
    law: Int[np.ndarray, "row"]
    durations_s: Float[np.ndarray, "duration"]

    @property
    def size(self) -> int:
        """Number of phases."""
        return len(self.phases)

    @property
    def decoding(self) -> Int[np.ndarray, "phase"]:
        """Decoding requests of each phase."""
        return np.array([p.decoding for p in self.phases], dtype=np.int64)


class _Builder:
    """Grows the table phase by phase from the empty node."""

    def __init__(self, system: ChainSystem) -> None:
        self.system = system
        self.population = Population(system.decodes)
        self.phases: dict[Phase, int] = {}
        self.durations: dict[float, int] = {}
        self.lengths: dict[tuple[float, float, int], int] = {}
        self.laws: dict[tuple[Counts, int, bool, int], int] = {}
        self.laws_after: list[tuple[np.ndarray, np.ndarray]] = []
        # (level, phase, admitted, duration, stepped, law) and probability of each kind of iteration
        self.kinds: list[tuple[int, int, int, int, int, int]] = []
        self.shares: list[float] = []

    def number(self, phase: Phase) -> int:
        if phase not in self.phases:
            if len(self.phases) >= _MOST_PHASES:
                raise InputError(
                    f"the chain has more than {_MOST_PHASES} phases; expected fewer residents, prompt lengths or "
                    "decode phases"
                )
            self.phases[phase] = len(self.phases)
        return self.phases[phase]

    def build(self) -> Kernel:
        depth = self.system.rule.prefill_limit(self.system.residents) + 1
        self.number(Phase(self.population.nobody))
        done = 0
        order = list(self.phases)
        while done < len(order):
            for level in range(depth + 1):
                if level or order[done].decoding:
                    self.outcomes(level, order[done])
            done += 1
            order = list(self.phases) if done == len(order) else order
        kinds = np.array(self.kinds, dtype=np.int64)
        law = kinds[:, 5]
        wide = np.array([len(after) for after, _ in self.laws_after])[law]
        level, phase, admitted, duration, stepped, law_of = np.repeat(kinds, wide, axis=0).T.copy()
        share = np.repeat(np.array(self.shares), wide)
        return Kernel(
            phases=tuple(self.phases),
            depth=depth,
            level=level,
            phase=phase,
            admitted=admitted,
            after=np.concatenate([self.laws_after[i][0] for i in law]),
            duration=duration,
            probability=share * np.concatenate([self.laws_after[i][1] for i in law]),
            stepped=stepped,
            law=law_of,
            durations_s=np.array(list(self.durations)),
        )

    def outcomes(self, level: int, phase: Phase) -> None:
        system, decoding = self.system, phase.decoding
        offer = system.rule.offer(level, decoding, system.residents)
        number = self.number(phase)
        # a head that is known of an empty queue cannot be: such a state is never entered, any row will do
        head = phase.head_tokens if level else 0
        for (admitted, tokens, pairs, next_head), share in admissions(level, head, offer, system.prompts).items():
            stepping = offer.mixes or not admitted
            run = decoding if stepping else 0
            charged = tokens if offer.charged_tokens is None or not admitted else offer.charged_tokens
            length = self.length(charged + run, pairs, admitted + run)
            law = self.law(phase.counts, admitted, stepping, next_head)
            self.kinds.append((level, number, admitted, length, int(stepping), law))
            self.shares.append(share)

    def length(self, tokens: int, pairs: float, sequences: int) -> int:
        key = (tokens, pairs, sequences)
        if key not in self.lengths:
            length = self.system.duration_s(tokens, pairs, sequences)
            self.lengths[key] = self.durations.setdefault(length, len(self.durations))
        return self.lengths[key]

    def law(self, counts: Counts, admitted: int, stepping: bool, head: int) -> int:
        key = (*self.population.alike(counts, admitted, stepping), head)
        if key not in self.laws:
            law = self.population.after(*key[:3])
            self.laws[key] = len(self.laws_after)
            after = np.array([self.number(Phase(to, head)) for to, _ in law], dtype=np.int64)
            self.laws_after.append((after, np.array([mass for _, mass in law])))
        return self.laws[key]


def admissions(
    waiting: int, head_tokens: int, offer: Offer, prompts: tuple[tuple[int, float], ...]
) -> dict[tuple[int, int, float, int], float]:
    """Return the law of (admitted, their tokens, their pairs, length of the head left behind or 0).

    Prompts are looked at in order of arrival; one that does not fit stops the rest and is known from then on, unless
    there is only one length, which needs no memory.
    """
    if len(prompts) == 1:  # what the loop below comes to, at once
        prompt = prompts[0][0]
        fit = offer.prefills if offer.tokens == math.inf else min(offer.prefills, int(offer.tokens // prompt))
        taken = max(min(waiting, fit), 0)
        return {(taken, taken * prompt, taken * (prompt * (prompt + 1) / 2), 0): 1.0}
    law: dict[tuple[int, int, float, int], float] = {}
    open_: dict[tuple[int, float], float] = {(0, 0.0): 1.0}
    for admitted in range(max(min(waiting, offer.prefills), 0) + 1):
        following: dict[tuple[int, float], float] = {}
        last = admitted == min(waiting, offer.prefills) or offer.prefills <= 0
        for (tokens, pairs), mass in open_.items():
            if last:
                key = (admitted, tokens, pairs, head_tokens if admitted == 0 else 0)
                law[key] = law.get(key, 0.0) + mass
                continue
            known = ((head_tokens, 1.0),) if admitted == 0 and head_tokens else prompts
            for prompt, share in known:
                if tokens + prompt <= offer.tokens:
                    grown = (tokens + prompt, pairs + prompt * (prompt + 1) / 2)
                    following[grown] = following.get(grown, 0.0) + mass * share
                else:
                    key = (admitted, tokens, pairs, prompt)
                    law[key] = law.get(key, 0.0) + mass * share
        open_ = following
        if last:
            break
    return law


def build_kernel(system: ChainSystem) -> Kernel:
    """Return the table of outcomes of a system."""
    return _Builder(system).build()
