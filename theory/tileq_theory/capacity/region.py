r"""The multi-class stability region: the polytope of rate vectors that no bound rules out.

It is an outer bound like the program: beyond it no policy is stable, inside it one may be or not.

The region is {lambda >= 0 : sum_i lambda_i price_i^f <= 1 for every facet f}. Shooting a ray from the origin in
direction q solves the capacity program for the mix q; its optimum is a boundary point and its duals a supporting
half-space (`Capacity.prices`). Facets are found by shooting at every vertex of the outer approximation that the known
half-spaces leave, until every vertex is itself a boundary point; the outer and the inner hull then agree, which proves
that no facet is missing.

Classes whose requests differ only in amount share one program, so a facet is a vector of six prices, and the region
of other classes on the same node is the same facets seen through other demands.
"""

from __future__ import annotations

__all__ = ["Facet", "StabilityRegion", "shoot", "stability_region"]

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity.answer import Binding, Capacity
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.nearby import nearby_prices, projection, same_prices
from tileq_theory.capacity.solve import capacity
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, SolveError
from tileq_theory.iteration_time import IterationTime

_SAME = 1e-7  # relative distance below which two boundary points or half-spaces are one
_SHOTS = 2000
_MOST_RATE_PER_S = 1e15  # a projection from beyond would overflow


@dataclass(frozen=True, slots=True)
class Facet:
    """Half-space sum_i price_s[i] lambda_i <= 1 with the limit that binds on it.

    `price_s[i]` is the load of one request per second of class i, in seconds (the whole system counts as one).
    """

    price_s: Float[np.ndarray, "class"]
    binding: Binding

    def load(self, rates: Float[np.ndarray, "class"]) -> float:
        """Return sum_i price_i lambda_i: 1 on the facet, below inside."""
        return float(self.price_s @ rates)


@dataclass(frozen=True, slots=True)
class StabilityRegion:
    """Facets and vertices of the region; `complete` says that the facets are proved to be all.

    Parameters
    ----------
    names
        Class names.
    facets
        Half-spaces, ordered along the boundary (2 classes) or by binding limit.
    vertices
        Corner points, requests per second, shape (vertex, class); the origin is left out.
    """

    names: tuple[str, ...]
    facets: tuple[Facet, ...]
    vertices: Float[np.ndarray, "vertex class"]
    complete: bool
    time: IterationTime
    demands: tuple[Demand, ...]
    limits: Limits

    def prices(self) -> Float[np.ndarray, "facet class"]:
        """Return the facets' prices as a matrix."""
        return np.array([facet.price_s for facet in self.facets])

    def load(self, rates: Sequence[float] | np.ndarray) -> float:
        """Return the load of a rate vector: below 1 inside, 1 on the boundary, above 1 outside.

        From the facets where they are all known; otherwise by solving the program along the ray (exact in any
        dimension).
        """
        point = self._point(rates)
        if not point.any():
            return 0.0
        if self.complete:
            return float((self.prices() @ point).max())
        return 1.0 / shoot(self.time, self.demands, self.limits, point / point.sum())[0] * float(point.sum())

    def loads(self, points: Float[np.ndarray, "point class"]) -> Float[np.ndarray, "point"]:
        """Return the load of many rate vectors at once (a sweep): the largest facet load of each row."""
        if not self.complete:
            return np.array([self.load(point) for point in points])
        rates = np.asarray(points, dtype=float)
        if rates.ndim != 2 or rates.shape[1] != len(self.names) or not np.isfinite(rates).all() or (rates < 0).any():
            raise InputError(
                f"points have shape {rates.shape}; expected (point, {len(self.names)}) finite numbers of 0 or more"
            )
        most: np.ndarray = (rates @ self.prices().T).max(axis=1)
        return most

    def contains(self, rates: Sequence[float] | np.ndarray) -> bool:
        """Return True when the rate vector lies in the (closed) region."""
        return self.load(rates) <= 1.0 + 1e-12

    def headroom(self, rates: Sequence[float] | np.ndarray) -> float:
        """Return the factor by which all rates can grow together (1 on the boundary, inf at the origin)."""
        load = self.load(rates)
        return math.inf if load == 0 else 1.0 / load

    def distance(self, rates: Sequence[float] | np.ndarray) -> float:
        """Return the Euclidean distance to the boundary facets: positive inside, negative outside, requests per second.

        Inside it is the smallest distance to a facet's plane; outside the distance to the region (a projection). Where
        not all facets are listed, those near the point are looked for (`nearby`): outside that is exact, inside a facet
        that no ray met could be nearer.
        """
        point, prices = self._point(rates), self.prices()
        if not self.complete:
            prices = nearby_prices(point, prices, self._price_along)
        slack = (1.0 - prices @ point) / np.linalg.norm(prices, axis=1)
        if slack.min() >= 0:
            return float(slack.min())
        return -float(np.linalg.norm(point - projection(point, prices)))

    def _price_along(self, direction: Float[np.ndarray, "class"]) -> Float[np.ndarray, "class"]:
        return shoot(self.time, self.demands, self.limits, direction)[1].price_s

    def _point(self, rates: Sequence[float] | np.ndarray) -> np.ndarray:
        point = np.asarray(rates, dtype=float)
        if point.shape != (len(self.names),) or not np.isfinite(point).all() or (point < 0).any():
            raise InputError(
                f"rates are {np.asarray(rates).tolist()}; expected {len(self.names)} finite numbers of 0 or more, "
                f"one for each of {', '.join(self.names)}"
            )
        if (point > _MOST_RATE_PER_S).any():
            raise InputError(f"rates are {point.tolist()}; expected at most {_MOST_RATE_PER_S:g} requests/s each")
        return point

    def to_dict(self) -> dict[str, object]:
        """Return facets and vertices as plain data."""
        return {
            "classes": list(self.names),
            "facets": [{"prices": f.price_s.tolist(), "binding": f.binding} for f in self.facets],
            "vertices": self.vertices.tolist(),
            "complete": self.complete,
            "error_band": [1 / self.time.error_band.high, 1 / self.time.error_band.low],
            "limits": self.limits.to_dict(),
            "iteration_time": self.time.to_dict(),
        }


_MOST_CLASSES = 12  # vertices grow with the classes: a second for 10 of them on a slow core


def stability_region(
    time: IterationTime, demands: Sequence[Demand], limits: Limits, *, names: Sequence[str] | None = None
) -> StabilityRegion:
    """Return the stability region of classes with the given demands: all facets and vertices for up to 12 classes.

    For more classes only the facets along the axes and the diagonal are given, `complete` is False, and membership is
    decided by solving the program along the ray.

    Examples
    --------
    >>> from tileq_theory import Demand, IterationTime
    >>> t = IterationTime.rad(t_lin_s=4e-3, t_nl_s=5e-6, tile_tokens=128)
    >>> chat, code = Demand(128, 100, 0, 0, 0, 0, 128, 228), Demand(1024, 10, 0, 0, 0, 0, 1024, 1034)
    >>> region = stability_region(t, [chat, code], Limits(max_batch_tokens=128), names=["chat", "code"])
    >>> region.vertices.round(3).tolist()
    [[120.992, 0.0], [0.0, 26.679]]
    """
    if not demands:
        raise InputError("no classes given; expected at least one demand")
    labels = tuple(names) if names is not None else tuple(f"class {i + 1}" for i in range(len(demands)))
    if len(labels) != len(demands) or len(set(labels)) != len(labels):
        raise InputError(f"class names are {list(labels)}; expected {len(demands)} different names")
    classes = tuple(demands)
    limits.check_classes(time, dict(zip(labels, classes, strict=True)))
    complete = len(classes) <= _MOST_CLASSES
    facets, vertices = _enumerate(time, classes, limits) if complete else _sketch(time, classes, limits)
    return StabilityRegion(labels, tuple(facets), vertices, complete, time, classes, limits)


def shoot(time: IterationTime, demands: Sequence[Demand], limits: Limits, direction: np.ndarray) -> tuple[float, Facet]:
    """Return the boundary rate along `direction` (summing to 1) and the half-space that supports it."""
    # one set of longest and shortest lengths for all directions, as if every class were present a little: with those
    # of the present classes only, the rows would change at the axes and a facet there would not hold inside
    everyone = Demand.mix(demands, np.ones(len(demands)))
    mix = replace(
        Demand.mix(demands, direction),
        longest_prompt_tokens=everyone.longest_prompt_tokens,
        longest_context_tokens=everyone.longest_context_tokens,
        shortest_context_tokens=everyone.shortest_context_tokens,
    )
    answer: Capacity = capacity(time, mix, limits)
    price = np.array([answer.price_of(demand) for demand in demands])
    return answer.rate_per_s, Facet(price, answer.binding)


def _enumerate(
    time: IterationTime, demands: tuple[Demand, ...], limits: Limits
) -> tuple[list[Facet], Float[np.ndarray, "vertex class"]]:
    """Shoot at every vertex of the outer approximation until all of them lie on the boundary."""
    size = len(demands)
    scale = np.array([shoot(time, demands, limits, axis)[0] for axis in np.eye(size)])  # rates on the axes
    facets: list[Facet] = []
    start = scale / scale.sum()  # the middle of the simplex between the axis points
    _add(facets, shoot(time, demands, limits, start)[1])
    proved: set[tuple[float, ...]] = set()
    for _ in range(_SHOTS):
        vertices = _outer_vertices(facets, scale)
        open_ones = [v for v in vertices if tuple(np.round(v / scale, 9)) not in proved]
        if not open_ones:
            return _ordered(facets, vertices, size), _sorted_vertices(vertices, size)
        for vertex in open_ones:
            rate, facet = shoot(time, demands, limits, vertex / vertex.sum())
            if rate >= vertex.sum() * (1 - _SAME):
                proved.add(tuple(np.round(vertex / scale, 9)))
            else:
                if not _add(facets, facet):
                    # the dual of a degenerate optimum repeats a known facet: tilt the ray towards the inside
                    _add(facets, _tilted(time, demands, limits, vertex, scale))
                break
    raise SolveError(f"the region's facets were not all found in {_SHOTS} solves; report this input")


def _tilted(
    time: IterationTime, demands: tuple[Demand, ...], limits: Limits, vertex: np.ndarray, scale: np.ndarray
) -> Facet:
    """Return a supporting half-space near `vertex`, along a ray moved a little towards the middle."""
    for share in (1e-6, 1e-4, 1e-2):
        ray = (1 - share) * vertex / vertex.sum() + share * scale / scale.sum()
        facet = shoot(time, demands, limits, ray / ray.sum())[1]
        if facet.load(vertex) > 1 + _SAME:
            return facet
    raise SolveError("the region has a facet whose prices could not be found; report this input")


def _add(facets: list[Facet], facet: Facet) -> bool:
    """Append a half-space unless it is known already; return whether it was new."""
    if any(same_prices(known.price_s, facet.price_s) for known in facets):
        return False
    facets.append(facet)
    return True


def _outer_vertices(facets: list[Facet], scale: np.ndarray) -> list[np.ndarray]:
    """Return the vertices, but the origin, of {lambda >= 0, lambda_i <= axis rate, facets}."""
    size = len(scale)
    prices = np.array([facet.price_s * scale for facet in facets])  # in units of the axis rates: all numbers near 1
    rows = np.vstack([prices, np.eye(size), -np.eye(size)])
    offsets = np.concatenate([-np.ones(len(prices) + size), np.zeros(size)])
    if size == 1:
        return [scale / max(float(prices.max()), 1.0)]
    from scipy.spatial import HalfspaceIntersection

    inside = np.full(size, 0.5 / max(float(prices.sum(axis=1).max()), size))
    points = HalfspaceIntersection(np.column_stack([rows, offsets]), inside).intersections
    points = np.where(points < 1e-10, 0.0, points)
    unique = np.unique(np.round(points, 10), axis=0)
    return [point * scale for point in unique if point.any()]


def _ordered(facets: list[Facet], vertices: list[np.ndarray], size: int) -> list[Facet]:
    """Drop half-spaces that touch the region in less than a facet, and order the rest."""
    keep = []
    for facet in facets:
        touching = [v for v in vertices if facet.load(v) > 1 - 10 * _SAME]
        rank = np.linalg.matrix_rank(np.array(touching), tol=1e-9 * max(map(np.max, touching))) if touching else 0
        if rank >= size:
            keep.append(facet)
    return sorted(keep, key=lambda facet: tuple(-facet.price_s / facet.price_s.sum()))


def _sorted_vertices(vertices: list[np.ndarray], size: int) -> Float[np.ndarray, "vertex class"]:
    """Return the vertices from the first axis to the last."""
    key = sorted(vertices, key=lambda v: tuple(-v / v.sum()))
    return np.array(key).reshape(-1, size)


def _sketch(
    time: IterationTime, demands: tuple[Demand, ...], limits: Limits
) -> tuple[list[Facet], Float[np.ndarray, "vertex class"]]:
    """Return the half-spaces and points along the axes and the diagonal only."""
    size = len(demands)
    facets: list[Facet] = []
    points = []
    for direction in [*np.eye(size), np.full(size, 1 / size)]:
        rate, facet = shoot(time, demands, limits, direction)
        _add(facets, facet)
        points.append(rate * direction)
    return facets, np.array(points)
