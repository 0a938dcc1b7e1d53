r"""Can these numbers be seconds? Implied rates against what hardware can do.

No batch is faster than its datasheet roofline by much, and none that anybody serves with is a hundred times slower.
Where the device and the model are in the catalogue the roofline is the measure; elsewhere the token rate and the time
of an iteration are held against what any known device reaches. A factor of a thousand either way is what milliseconds
taken for seconds look like, and the question says so.
"""

from __future__ import annotations

__all__ = ["unit_questions"]

import numpy as np

from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

_FASTEST_SHARE = 0.3  # faster than this share of the roofline is no measurement noise: caches do not halve whole models
_SLOWEST_SHARE = 100.0  # kernels reach a hundredth of the datasheet on any engine
_SHORTEST_S = 5e-5  # an iteration of even a toy model launches dozens of kernels
_LONGEST_S = 30.0
_FEWEST_TOKENS_PER_S = 2.0  # of batches of 32 tokens and more
_MOST_TOKENS_PER_S = 2e7


def unit_questions(profile: Profile) -> tuple[str, ...]:
    """Return what looks wrong with the profile's time unit, one question each; empty when nothing does.

    Examples
    --------
    >>> ms = Profile.of(tokens=[64, 512], seconds=[22.7, 46.5])  # milliseconds taken for seconds
    >>> unit_questions(ms)
    ('a median iteration takes 34.6 s; were milliseconds or microseconds taken for seconds?',)
    """
    bound = _roofline(profile)
    return _by_roofline(profile, bound) if bound is not None else _by_rates(profile)


def _roofline(profile: Profile) -> IterationTime | None:
    from tileq_theory.hardware import gpu_names, load_gpu, load_model, model_names, roofline

    c = profile.conditions
    if c.device not in gpu_names() or c.model not in model_names():
        return None
    try:
        t = roofline(load_gpu(c.device), load_model(c.model), c.dtype, c.kv_dtype, c.tp, tile_tokens=None)
    except InputError:
        return None
    # operators of layers alone read less than a whole iteration: the floor would accuse them wrongly
    return t.with_(weight_floor_s=0.0, sequence_s=0.0) if profile.scope == "layer operators" else t


def _by_roofline(profile: Profile, bound: IterationTime) -> tuple[str, ...]:
    modelled = np.asarray(bound(*profile.compositions.T))
    ratio = float(np.median(profile.seconds / modelled))
    where = f"{profile.conditions.model} on {profile.conditions.device}"
    if ratio < _FASTEST_SHARE:
        return (
            f"{where}: measured times are {ratio:.2g} of what the datasheet's peaks allow, faster than the device can "
            f"be; {_guess(ratio)}",
        )
    if ratio > _SLOWEST_SHARE:
        return (f"{where}: measured times are {ratio:.3g} times the datasheet roofline; {_guess(ratio)}",)
    return ()


def _guess(ratio: float) -> str:
    if 0.3e-3 < ratio < 0.1:
        return "were seconds divided by 1000, taken for milliseconds?"
    if ratio < 0.3e-3:
        return "were seconds or milliseconds divided by a million, taken for microseconds?"
    if 300 < ratio < 3e5:
        return "were milliseconds taken for seconds?"
    if ratio >= 3e5:
        return "were microseconds taken for seconds?"
    return "check the unit, the device and the model"


def _by_rates(profile: Profile) -> tuple[str, ...]:
    found = []
    median = float(np.median(profile.seconds))
    if profile.scope == "iteration" and median < _SHORTEST_S:
        found.append(
            f"a median iteration takes {1e6 * median:.3g} us, less than launching its kernels; were seconds divided by "
            "1000, taken for milliseconds, or is this one layer?"
        )
    if median > _LONGEST_S:
        found.append(f"a median iteration takes {median:.3g} s; were milliseconds or microseconds taken for seconds?")
    large = profile.tokens >= 32
    if large.any() and not found:
        rate = profile.tokens[large] / profile.seconds[large]
        span = f"batches of {profile.tokens[large].min():g} to {profile.tokens[large].max():g} tokens run at"
        if float(np.max(rate)) < _FEWEST_TOKENS_PER_S * 10:
            found.append(f"{span} {rate.max():.3g} tokens/s at most; were milliseconds taken for seconds?")
        elif float(np.median(rate)) > _MOST_TOKENS_PER_S:
            found.append(f"{span} {np.median(rate):.3g} tokens/s; were seconds divided by 1000?")
    return tuple(found)
