r"""Fluid modes of the policies of one node, outside a bounded set.

State: prefill tokens left and decode tokens left of all requests in the system. Arrivals add lambda P and lambda D a
second; an iteration of n tokens takes tau(n) and removes what it runs. Outside a bounded set batches are as full as the
policy makes them (less full ones need few requests), which leaves the modes

    RAD                 prefill (b_lcm, 0) at tau(b_lcm);  decode (0, b_col) at tau(b_col)
    exclusive (vLLM v0) prefill (b_max, 0) at tau(b_max);  decode (0, N) at tau(N)
    work-conserving     any (b - d, d), 0 <= d <= min(N, b), at tau(b): the two ends of the segment; and, where N
                        slots cannot fill the budget, (N P, N D)/(D + 1): a prompt joins when a resident ends

An iteration takes tau(n) and, where the demand has them, e A/P a prefill token, k G/D a decode token (contexts at their
mean) and s a sequence.

RAD's own function is the backlog B = prefill left + decode left: with one tile b for both kinds of batch its drift is
(arriving tokens a slot - b) a slot, in every full slot.
"""

from __future__ import annotations

__all__ = ["backlog_drift_tokens", "exclusive_modes", "rad_modes", "work_conserving_modes"]

from fractions import Fraction

from tileq_theory.certificates.modes import FluidModes, Mode, exact
from tileq_theory.errors import nonnegative, positive, positive_int
from tileq_theory.iteration_time import IterationTime

_COORDINATES = ("prefill left (tokens)", "decode left (tokens)")


def _modes(
    rate_per_s: float,
    prefill_tokens: float,
    decode_tokens: float,
    batches: dict[str, tuple[float, float]],
    time: IterationTime,
    attention_pairs: float,
    kv_read_tokens: float,
) -> FluidModes:
    """Return the modes of the named batches (prefill tokens, decode tokens)."""
    rate = exact("rate_per_s", positive("rate_per_s", rate_per_s))
    prompt = rate * exact("prefill_tokens", nonnegative("prefill_tokens", prefill_tokens))
    steps = rate * exact("decode_tokens", nonnegative("decode_tokens", decode_tokens))
    pairs = nonnegative("attention_pairs", attention_pairs) / prefill_tokens if prefill_tokens else 0.0
    context = nonnegative("kv_read_tokens", kv_read_tokens) / decode_tokens if decode_tokens else 0.0
    modes = []
    for name, (prefill, decode) in batches.items():
        read = decode * context + (prefill if time.kv_counts_prefill else 0.0)
        sequences = decode + (prefill / prefill_tokens if prefill_tokens else 0.0)
        seconds = float(time(prefill + decode, prefill * pairs, read, sequences))
        length = exact(f"time of a {name} iteration", positive(f"time of a {name} iteration", seconds))
        drift = (prompt - Fraction(prefill) / length, steps - Fraction(decode) / length)
        modes.append(Mode(name, drift))
    return FluidModes(_COORDINATES, tuple(modes))


def rad_modes(
    time: IterationTime,
    *,
    rate_per_s: float,
    prefill_tokens: float,
    decode_tokens: float,
    b_col: int,
    b_lcm: int | None = None,
    attention_pairs: float = 0.0,
    kv_read_tokens: float = 0.0,
) -> FluidModes:
    r"""Return RAD's two modes.

    Parameters
    ----------
    time
        Iteration time; its attention and KV terms count with the two amounts below.
    rate_per_s
        lambda > 0.
    prefill_tokens, decode_tokens
        E[P] and E[D] of a request (for prompts that are not tile multiples, b_lcm E[ceil(P/b_lcm)]).
    b_col, b_lcm
        Tokens of the decode and of the prefill tile (the same by default).
    attention_pairs, kv_read_tokens
        A and G of a request; 0: attention and the reading of KV are left out, as in RAD's model.

    References
    ----------
    arXiv 2508.01002, Algorithm 1 and the proof of Theorem 2.

    Examples
    --------
    >>> from tileq_theory.certificates import certify
    >>> time = IterationTime.rad(t_lin_s=0.004, t_nl_s=5e-6, tile_tokens=128)
    >>> modes = rad_modes(time, rate_per_s=36.0, prefill_tokens=576, decode_tokens=185.00078, b_col=128)
    >>> certify(modes).verdict
    'stable'
    """
    decode = positive_int("b_col", b_col)
    prefill = decode if b_lcm is None else positive_int("b_lcm", b_lcm)
    batches: dict[str, tuple[float, float]] = {
        "prefill": (prefill, 0),
        "decode": (0, decode),
    }
    return _modes(rate_per_s, prefill_tokens, decode_tokens, batches, time, attention_pairs, kv_read_tokens)


def exclusive_modes(
    time: IterationTime,
    *,
    rate_per_s: float,
    prefill_tokens: float,
    decode_tokens: float,
    token_budget: int,
    residents: int,
    attention_pairs: float = 0.0,
    kv_read_tokens: float = 0.0,
) -> FluidModes:
    r"""Return the two modes of exclusive batches: prefill with the whole budget, decode with every slot.

    Parameters
    ----------
    time, rate_per_s, prefill_tokens, decode_tokens
        As for `rad_modes`.
    token_budget
        b_max, tokens of a prefill iteration; where the prompts of all N residents are fewer, it holds those.
    residents
        N, tokens of a decode iteration. Where no smaller batch takes less time per token, full batches of both kinds
        are the best an exclusive policy can do; one that starts prefills before N slots are free is slower, so
        "stable" is then not proved of it, "unstable" is. Where a batch overhangs a tile (130 decodes on tiles of 128)
        both words are of a policy that fills its batches nevertheless; one that stops at the tile carries more
        (`capacity.restricted.exclusive_capacity` bounds them all).
    attention_pairs, kv_read_tokens
        As for `rad_modes`.

    Examples
    --------
    >>> from tileq_theory.certificates import certify
    >>> modes = exclusive_modes(IterationTime.constant(0.05), rate_per_s=10.0, prefill_tokens=500, decode_tokens=100,
    ...                         token_budget=2048, residents=64)
    >>> certify(modes).verdict
    'stable'
    """
    budget, slots = positive_int("token_budget", token_budget), positive_int("residents", residents)
    prompts = min(budget, slots * prefill_tokens) if prefill_tokens else budget  # no more than N prompts at a time
    batches: dict[str, tuple[float, float]] = {
        "prefill": (prompts, 0),
        "decode": (0, slots),
    }
    return _modes(rate_per_s, prefill_tokens, decode_tokens, batches, time, attention_pairs, kv_read_tokens)


def work_conserving_modes(
    time: IterationTime,
    *,
    rate_per_s: float,
    prefill_tokens: float,
    decode_tokens: float,
    token_budget: int,
    residents: int | None = None,
    attention_pairs: float = 0.0,
    kv_read_tokens: float = 0.0,
) -> FluidModes:
    r"""Return the modes of a policy that fills every batch to its budget, whatever the mixture.

    Parameters
    ----------
    time, rate_per_s, prefill_tokens, decode_tokens
        As for `rad_modes`.
    token_budget
        b_max, tokens of an iteration.
    residents
        N, requests served at a time (None: as many as the budget). Where all N together leave the budget unfilled the
        policy cannot fill its batches, and the slots' own mode is one more.
    attention_pairs, kv_read_tokens
        As for `rad_modes`.

    References
    ----------
    arXiv 2504.07347, Theorem 1 (work-conserving policies, load below 1).

    Examples
    --------
    >>> from tileq_theory.certificates import certify
    >>> time = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> modes = work_conserving_modes(time, rate_per_s=18.0, prefill_tokens=100, decode_tokens=100, token_budget=512)
    >>> certify(modes).verdict
    'unstable'
    """
    budget = positive_int("token_budget", token_budget)
    most = budget if residents is None else min(positive_int("residents", residents), budget)
    batches: dict[str, tuple[float, float]] = {"prefill": (budget, 0), "decode": (budget - most, most)}
    if residents is not None and decode_tokens > 0:
        turn = residents / (decode_tokens + 1)  # requests that end in an iteration of full slots
        if turn * (prefill_tokens + decode_tokens) < budget:
            batches["full slots"] = (turn * prefill_tokens, turn * decode_tokens)
    return _modes(rate_per_s, prefill_tokens, decode_tokens, batches, time, attention_pairs, kv_read_tokens)


def backlog_drift_tokens(
    time: IterationTime, *, rate_per_s: float, prefill_tokens: float, decode_tokens: float, b_col: int
) -> Fraction:
    r"""Return the drift of RAD's backlog over a full slot: arriving tokens - b_col, tokens, exactly.

    Parameters
    ----------
    time, rate_per_s, prefill_tokens, decode_tokens, b_col
        As for `rad_modes`, with one tile for both kinds of batch.

    References
    ----------
    arXiv 2508.01002, proof of Theorem 2.

    Examples
    --------
    >>> time = IterationTime.rad(t_lin_s=0.004, t_nl_s=5e-6, tile_tokens=128)
    >>> drift = backlog_drift_tokens(time, rate_per_s=36.0, prefill_tokens=576, decode_tokens=185, b_col=128)
    >>> round(float(drift), 6)
    -0.88256
    """
    modes = rad_modes(
        time, rate_per_s=rate_per_s, prefill_tokens=prefill_tokens, decode_tokens=decode_tokens, b_col=b_col
    )
    slot = exact("slot", float(time.tau_s(b_col)))
    drifts = {sum(mode.drift, Fraction(0)) * slot for mode in modes.modes}
    (drift,) = drifts  # the same in both modes: what the function is for
    return drift
