r"""Slots: a node with a fixed number of request slots, requests of one size at a fixed gap (Dai et al., section 6).

Requests of P prompt and D output tokens arrive every T_gap; g = T_gap/t iterations of one tile (b tokens, t seconds)
pass between two arrivals. In a regime that repeats every gap, each request takes P prefill and D decode tokens, so an
iteration carries on average

    p = P/g prefill and d = D/g decode tokens,   feasible with one-tile iterations iff p + d <= b.

Decodes come first, one token a resident: if d is whole, d residents decode in every iteration, a prompt gets b - d >= p
tokens, and the prompts in progress need p/(b - d) <= 1 slots. So Sarathi with a budget of one tile *locks in* at p + d
tokens an iteration when p + d <= b and d + 1 <= the slots. With (290, 990), b = 128, g = 10: 29 + 99 = 128, the tile
exactly full, 99 of 100 slots decoding.

Other rules cannot carry it (decode tokens that fit into one gap, against the D needed; S the slots):

* Orca with budget b: prefills first. The ceil(P/b) iterations with prompt tokens leave k b - P in all for decodes, the
  others at most S - ... each: k b - P + (g - k) min(S, b), k = ceil(P/b).
* Sarathi with budget B > b: a prompt rides along in few large iterations, each of ceil(n/b) tiles, which cost
  t(n) = c + a ceil(n/b); the gap then holds fewer iterations, and each gives at most S decode tokens.
* Whole prompts (static batches, vLLM v0) with budget b < P: no prompt ever fits; the node freezes.

The counts for Orca and larger budgets are upper bounds: below D they prove divergence, at or above D nothing.
This page's reading of the bounds is a reconstruction; the source shows them by simulation.
"""

from __future__ import annotations

__all__ = ["SlotVerdict", "slot_verdict"]

import math
from dataclasses import dataclass
from typing import Literal

from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.iteration_time import IterationTime

Rule = Literal["sarathi", "orca", "static", "vllm"]


@dataclass(frozen=True, slots=True)
class SlotVerdict:
    """What a rule does with the stream.

    Parameters
    ----------
    state
        "locks in", "diverges", "freezes" or "undecided".
    prefill_tokens, decode_tokens
        Mean tokens an iteration of one tile must carry, P/g and D/g.
    decodes_possible
        Upper bound of decode tokens that fit into one gap.
    decodes_needed
        D.
    reason
        One sentence.
    """

    state: Literal["locks in", "diverges", "freezes", "undecided"]
    prefill_tokens: float
    decode_tokens: float
    decodes_possible: float
    decodes_needed: float
    reason: str


def slot_verdict(
    rule: Rule,
    *,
    budget: int,
    slots: int,
    prompt_tokens: int,
    output_tokens: int,
    gap_s: float,
    time: IterationTime,
) -> SlotVerdict:
    """Return what a scheduling rule does with requests of one size at a fixed gap.

    Parameters
    ----------
    rule
        "sarathi" (decodes first), "orca" (prefills first, in chunks), "static" or "vllm" (whole prompts).
    budget, slots
        Tokens of an iteration and requests in the node.
    prompt_tokens, output_tokens, gap_s
        P, D (decode steps) and the gap, seconds.
    time
        Iteration time; only its part that depends on the batch size enters.

    Raises
    ------
    InputError
        A number outside its domain.

    Examples
    --------
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> stream = dict(slots=100, prompt_tokens=290, output_tokens=990, gap_s=0.4675, time=t)
    >>> [slot_verdict(r, budget=b, **stream).state for r, b in
    ...  (("sarathi", 128), ("orca", 128), ("sarathi", 1024), ("static", 128), ("vllm", 128))]
    ['locks in', 'diverges', 'diverges', 'freezes', 'freezes']
    >>> verdict = slot_verdict("sarathi", budget=128, **stream)
    >>> round(verdict.prefill_tokens, 9), round(verdict.decode_tokens, 9)
    (29.0, 99.0)
    """
    if rule not in ("sarathi", "orca", "static", "vllm"):
        raise InputError(f"rule is {rule!r}; expected 'sarathi', 'orca', 'static' or 'vllm'")
    b, places = positive_int("budget", budget), positive_int("slots", slots)
    prompt, output = positive_int("prompt_tokens", prompt_tokens), positive_int("output_tokens", output_tokens)
    gap = positive("gap_s", gap_s)
    tile = min(b, time.tile_tokens)
    iterations = gap / float(time.tau_s(tile))
    p, d = prompt / iterations, output / iterations
    if rule in ("static", "vllm") and prompt > b:
        return SlotVerdict("freezes", p, d, 0.0, output, f"a prompt of {prompt} tokens never fits a budget of {b}")
    possible = (
        _decodes_first(b, places, prompt, gap, time)
        if rule != "orca"
        else _prefills_first(b, places, prompt, gap, time)
    )
    if possible < output * (1 - 1e-12):
        reason = f"at most {possible:.1f} of the {output} decode tokens of a gap fit beside the prompt"
        return SlotVerdict("diverges", p, d, possible, output, reason)
    whole = math.isclose(d, round(d), rel_tol=1e-9)
    if rule == "sarathi" and b <= time.tile_tokens and whole and p + d <= b * (1 + 1e-12) and d + 1 <= places + 1e-9:
        reason = f"{p:.6g} prefill and {d:.6g} decode tokens fill {p + d:.6g} of {b} in every iteration"
        return SlotVerdict("locks in", p, d, possible, output, reason)
    return SlotVerdict("undecided", p, d, possible, output, "the bounds do not exclude stability; simulate it")


def _decodes_first(budget: int, slots: int, prompt: int, gap: float, time: IterationTime) -> float:
    """Return most decode tokens a gap gives when d residents decode in every iteration and the rest is prefill.

    One prompt must pass in the gap. With n decodes in an iteration the prompt takes ceil(P/(budget - n)) iterations of
    up to budget tokens; the largest yield over n <= slots.
    """
    best = 0.0
    for n in range(1, min(slots, budget) + 1):
        room = budget - n
        if room == 0:
            continue
        mixed = prompt / room  # in the mean over gaps chunks of two prompts may share an iteration
        spent = mixed * float(time.tau_s(min(budget, n + prompt)))
        if spent > gap * (1 + 1e-12):
            continue
        # the prompt's own slot is not decoding while it prefills
        beside = min(n, slots - 1)
        rest = (gap - spent) / float(time.tau_s(n))
        best = max(best, beside * mixed + n * rest)
    return best


def _prefills_first(budget: int, slots: int, prompt: int, gap: float, time: IterationTime) -> float:
    whole = math.ceil(prompt / budget)
    beside = min(whole * budget - prompt, whole * max(slots - 1, 0))
    rest = gap - whole * float(time.tau_s(budget))
    alone = min(slots, budget)
    return beside + max(rest, 0.0) / float(time.tau_s(alone)) * alone
