r"""The staircase of one kernel: where its time steps, how wide the steps are.

A GeMM of m x k by k x n computes its output in blocks, and ceil(blocks / processors) waves of them take one time
each; along m the time is flat until one more wave is needed. `find_staircase` fits t = c + max(w, a ceil(m/b) + beta
m) and lists the steps that are in the data themselves, whatever the fit says: kernels change with m, so steps need
not be even.
"""

from __future__ import annotations

__all__ = ["Staircase", "Step", "find_staircase"]

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from tileq_profiling.calibration.records import TileVerdict
from tileq_profiling.fit.tiles import roundest
from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError, positive
from tileq_theory.iteration_time import IterationTime


@dataclass(frozen=True, slots=True)
class Step:
    """A rise between two neighbouring sizes.

    Parameters
    ----------
    after_tokens, before_tokens
        The last size before the rise and the first one after it.
    low_s, high_s
        Levels of the two treads, seconds (medians of their points).
    """

    after_tokens: float
    before_tokens: float
    low_s: float
    high_s: float


_NARROWEST = 16


@dataclass(frozen=True, slots=True)
class Staircase:
    """What the times of one kernel show.

    Parameters
    ----------
    time
        Fitted model; its `tile_tokens` is the width of the steps where a tile is visible.
    verdict
        Whether an even staircase fits better than a line.
    steps
        The rises in the data, in the order of the sizes.
    width_tokens
        Width of the steps: the roundest of the widest tiles of which every step's [after, before) holds a multiple;
        None where there are fewer than two steps or no width agrees with all of them.
    """

    time: IterationTime
    verdict: TileVerdict
    steps: tuple[Step, ...]
    width_tokens: int | None


def find_staircase(tokens: ArrayLike, seconds: ArrayLike, rise: float = 0.15) -> Staircase:
    """Return the staircase in the times of one kernel.

    Parameters
    ----------
    tokens, seconds
        Sizes along m and their times.
    rise
        Smallest relative rise that counts as a step.

    Examples
    --------
    >>> m = np.arange(16, 1025, 16)
    >>> s = find_staircase(m, 4e-6 + 1e-4 * np.ceil(m / 256))
    >>> s.width_tokens, [(x.after_tokens, x.before_tokens) for x in s.steps]
    (256, [(256.0, 272.0), (512.0, 528.0), (768.0, 784.0)])
    """
    from tileq_profiling.fit.fit import fit

    profile = Profile.of(tokens=tokens, seconds=seconds, scope="layer operators")
    calibration = fit(profile, bootstrap=0)
    steps = _steps(*_medians(profile), positive("rise", rise))
    return Staircase(calibration.time, calibration.tile, steps, _width(steps, float(profile.tokens.max())))


def _medians(profile: Profile) -> tuple[Float[np.ndarray, "size"], Float[np.ndarray, "size"]]:
    sizes = np.unique(profile.tokens)
    if sizes.size < 3:
        raise InputError(f"{sizes.size} distinct sizes were measured; a staircase needs at least 3")
    return sizes, np.array([np.median(profile.seconds[profile.tokens == n]) for n in sizes])


def _steps(sizes: Float[np.ndarray, "size"], seconds: Float[np.ndarray, "size"], rise: float) -> tuple[Step, ...]:
    """Return the rises that no line through these sizes has, with the levels of the treads beside them.

    A line with an intercept of 0 or more grows by less than the sizes do. A rise by more than they do, of at least
    `rise`, that lasts beyond the next size is a step.
    """
    growth, room = seconds[1:] / seconds[:-1], sizes[1:] / sizes[:-1]
    lasting = np.append(seconds[2:], seconds[-1]) > (1 + rise / 2) * seconds[:-1]
    at = np.flatnonzero((growth > np.maximum(1 + rise, room)) & lasting)
    edges = np.concatenate([[0], at + 1, [sizes.size]])
    levels = [float(np.median(seconds[a:b])) for a, b in itertools.pairwise(edges)]
    return tuple(Step(float(sizes[i]), float(sizes[i + 1]), levels[j], levels[j + 1]) for j, i in enumerate(at))


def _width(steps: tuple[Step, ...], largest: float) -> int | None:
    """Return the roundest of the widest run of tiles of which each step's interval holds a multiple."""
    if len(steps) < 2:
        return None
    after = np.array([s.after_tokens for s in steps])
    before = np.array([s.before_tokens for s in steps])
    tiles = np.arange(_NARROWEST, int(largest) + 1)[:, None]
    fits = np.all(np.floor((before - 1) / tiles) * tiles >= after, axis=1)
    if not fits.any():
        return None
    end = int(np.flatnonzero(fits)[-1])
    start = end
    while start > 0 and fits[start - 1]:
        start -= 1
    return roundest(tiles[start : end + 1, 0].tolist())
