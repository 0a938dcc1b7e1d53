r"""What the exact chain is about: one node, one class, an iteration at a time.

Requests arrive as a Poisson process of rate lambda. At the start of an iteration those that have arrived wait in order;
the rule takes in whole prompts, residents decode one token each (or not, beside a prefill), the iteration lasts
t(n, A, 0, m), and at its end requests without a step left go. An idle node starts when the next request arrives.
"""

from __future__ import annotations

__all__ = ["ChainSystem"]

import math
from dataclasses import dataclass, field

from tileq_theory.chain.phase_type import DiscretePhaseType, decode_phases
from tileq_theory.chain.rules import BatchRule
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import LengthLaw

_MOST_RESIDENTS = 256
_MOST_PROMPTS = 16


@dataclass(frozen=True, slots=True, init=False, eq=False)
class ChainSystem:
    """A node whose iterations form a Markov chain.

    Parameters
    ----------
    time
        Iteration time. The chain does not know contexts, so `kv_token_s` must be 0: to count KV reading on average, add
        kv_token_s x (mean context) to `sequence_s`, which is exact for the mean iteration time but not for its spread.
    rule
        `DecodeFirst`, `PrefillFirst`, `RadRule`, `ThresholdRule`.
    residents
        Cap on requests being served, max_num_seqs (b_col for RAD), 1 to 256.
    prompt_tokens
        P: one length, or a mapping from length to probability (at most 16 lengths).
    outputs
        O: `Geometric`, `DiscretePhaseType` or a law with at most 64 tokens.
    convention
        "engine": O - 1 decode steps, the prefill emits the first token; "paper": O.
    waiting_room
        Most requests that may wait; one that arrives to a full room is lost. None: unlimited.
    duration_stages
        None: an iteration lasts exactly t; k: Erlang with k stages and mean t (1: exponential).

    Raises
    ------
    InputError
        A parameter outside its domain, a prompt that the rule can never take in, kv_token_s above 0.
    """

    time: IterationTime
    rule: BatchRule
    residents: int
    prompts: tuple[tuple[int, float], ...]
    decodes: DiscretePhaseType = field(repr=False)
    convention: TokenConvention
    waiting_room: int | None
    duration_stages: int | None

    def __init__(
        self,
        *,
        time: IterationTime,
        rule: BatchRule,
        residents: int,
        prompt_tokens: int | dict[int, float],
        outputs: DiscretePhaseType | LengthLaw,
        convention: TokenConvention = "engine",
        waiting_room: int | None = None,
        duration_stages: int | None = None,
    ) -> None:
        cap = positive_int("residents", residents)
        if cap > _MOST_RESIDENTS:
            raise InputError(
                f"residents is {cap}; expected at most {_MOST_RESIDENTS}: the chain keeps a state for each"
            )
        if time.kv_token_s > 0:
            raise InputError(
                f"kv_token_s is {time.kv_token_s!r}; expected 0: the chain does not know contexts "
                "(add kv_token_s x mean context to sequence_s to count them on average)"
            )
        values = {
            "time": time,
            "rule": rule,
            "residents": cap,
            "prompts": _prompt_law(prompt_tokens, rule.token_limit()),
            "decodes": decode_phases(outputs, convention),
            "convention": convention,
            "waiting_room": None if waiting_room is None else _room(waiting_room),
            "duration_stages": None if duration_stages is None else positive_int("duration_stages", duration_stages),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def duration_s(self, tokens: int, pairs: float, sequences: int) -> float:
        """Return the mean length of an iteration, seconds; 0 s is refused, for time would not pass."""
        return positive("iteration time", float(self.time(tokens, pairs, 0.0, sequences)))

    @property
    def mean_prompt_tokens(self) -> float:
        """E[P], tokens."""
        return math.fsum(p * q for p, q in self.prompts)

    @property
    def mean_decode_steps(self) -> float:
        """E[D], decode steps."""
        return self.decodes.mean()


def _room(waiting_room: int) -> int:
    # one request passes through the room even when the node is idle
    return positive_int("waiting_room", waiting_room)


def _prompt_law(prompt_tokens: int | dict[int, float], limit: float) -> tuple[tuple[int, float], ...]:
    """Return the prompt lengths with their probabilities, checked."""
    law = dict(prompt_tokens) if isinstance(prompt_tokens, dict) else {prompt_tokens: 1.0}
    if not 1 <= len(law) <= _MOST_PROMPTS:
        raise InputError(f"prompt_tokens has {len(law)} lengths; expected 1 to {_MOST_PROMPTS}")
    shares = {positive_int("prompt_tokens", p): positive(f"share of prompt_tokens {p}", q) for p, q in law.items()}
    if abs(math.fsum(shares.values()) - 1) > 1e-9:
        raise InputError(f"shares of prompt_tokens sum to {math.fsum(shares.values())!r}; expected 1")
    if max(shares) > limit:
        raise InputError(
            f"prompt_tokens is {max(shares)} and the rule takes in at most {limit:g} tokens at a time; "
            "expected prompts of one chunk (raise token_budget or tile_tokens)"
        )
    total = math.fsum(shares.values())
    return tuple(sorted((p, q / total) for p, q in shares.items()))
