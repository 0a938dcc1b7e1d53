r"""One iteration of the chain, before arrivals: a sparse table of outcomes.

State at an iteration boundary: (w, phase), w requests waiting and the phase = (counts of decoding requests per
decode phase, length of the head of the queue where it is known because it did not fit). An outcome of (w, phase) is
(admitted a, next phase, duration, probability); the next level is w - a + A, A arrivals during the duration.

From w >= `depth` the outcomes no longer depend on w: the queue is never exhausted by one iteration.
"""

from __future__ import annotations

__all__ = ["Kernel", "Phase", "build_kernel"]

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
        self.rows: list[tuple[int, int, int, int, int, float, int]] = []

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
        while done < len(self.phases):
            phase = list(self.phases)[done]
            for level in range(depth + 1):
                if level or phase.decoding:
                    self.outcomes(level, phase)
            done += 1
        columns = [np.array(c) for c in zip(*self.rows, strict=True)]
        names = ("level", "phase", "admitted", "after", "duration", "probability", "stepped")
        table = dict(zip(names, columns, strict=True))
        return Kernel(phases=tuple(self.phases), depth=depth, durations_s=np.array(list(self.durations)), **table)

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
            length = system.duration_s(charged + run, pairs, admitted + run)
            index = self.durations.setdefault(length, len(self.durations))
            for counts, mass in self.population.after(phase.counts, admitted, stepping):
                after = self.number(Phase(counts, next_head))
                self.rows.append((level, number, admitted, after, index, share * mass, int(stepping)))


def admissions(
    waiting: int, head_tokens: int, offer: Offer, prompts: tuple[tuple[int, float], ...]
) -> dict[tuple[int, int, float, int], float]:
    """Return the law of (admitted, their tokens, their pairs, length of the head left behind or 0).

    Prompts are looked at in order of arrival; one that does not fit stops the rest and is known from then on, unless
    there is only one length, which needs no memory.
    """
    single = len(prompts) == 1
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
                    key = (admitted, tokens, pairs, 0 if single else prompt)
                    law[key] = law.get(key, 0.0) + mass * share
        open_ = following
        if last:
            break
    return law


def build_kernel(system: ChainSystem) -> Kernel:
    """Return the table of outcomes of a system."""
    return _Builder(system).build()
