r"""Service law of a queue: any mixture of a density and atoms, with its truncated moments at every point.

Everything that the M/G/1 family asks of a law is, at points x_i with masses w_i,

    F(x) = P(S <= x),   E[S; S <= x],   E[S^2; S <= x],   the same for S < x,   and sums of w_i f(x_i),

the points being quadrature nodes where the law has a density and the atoms where it has jumps. Jobs of equal size
are served first come first served, so atoms are exact, not smeared.
"""

from __future__ import annotations

__all__ = ["ServiceLaw", "stable_load"]

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, finite, instance, nonnegative, positive
from tileq_theory.latency.length_atoms import length_atoms
from tileq_theory.latency.points import SizePoints, size_points
from tileq_theory.latency.quadrature import (
    Density,
    Panel,
    cut_panel,
    gauss,
    law_panels,
    second_is_infinite,
    to_legendre,
)
from tileq_theory.lengths.base import LengthLaw


@dataclass(frozen=True, slots=True, eq=False)
class ServiceLaw:
    """Law of a service time S >= 0, seconds. Build it by one of the class methods.

    Parameters
    ----------
    name
        For messages and tables.
    left_s, right_s
        Edges of the quadrature panels, ascending; empty for a discrete law.
    nodes_s, weights
        Quadrature nodes of each panel and their masses (density times quadrature weight).
    atoms_s, atom_masses
        Jumps, ascending, and their probabilities.

    Examples
    --------
    >>> law = ServiceLaw.exponential(2.0)
    >>> round(law.mean_s, 12), round(law.second_moment_s2, 12)
    (2.0, 8.0)
    >>> ServiceLaw.deterministic(0.5).scv
    0.0
    """

    name: str
    left_s: Float[np.ndarray, "panel"]
    right_s: Float[np.ndarray, "panel"]
    nodes_s: Float[np.ndarray, "panel node"]
    weights: Float[np.ndarray, "panel node"]
    atoms_s: Float[np.ndarray, "atom"]
    atom_masses: Float[np.ndarray, "atom"]
    heavy: bool = False

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_distribution(cls, law: Density, *, name: str = "") -> ServiceLaw:
        """Return the law of a continuous distribution: an object with pdf, cdf, sf, ppf and support (scipy.stats).

        Raises
        ------
        InputError
            Negative sizes, a density that does not integrate to 1, or an infinite mean.
        """
        left, right = law_panels(law)
        x, w = gauss()
        half = (right - left) / 2
        nodes = left[:, None] + half[:, None] * (x + 1)
        weights = np.asarray(law.pdf(nodes), dtype=float) * w * half[:, None]
        none, total = np.zeros(0), float(weights.sum())
        called = name or _name(law)
        if not abs(total - 1) <= 1e-6:
            raise InputError(f"the density of {called} integrates to {total:.9g}; expected 1")
        # a singularity at the right end loses about the square root of the rounding unit of mass
        built = cls(called, left, right, nodes, weights / total, none, none, second_is_infinite(law))
        mean = float(getattr(law, "mean", lambda: 0.0)())
        if not math.isfinite(mean):
            raise InputError(f"{built.name} has no finite mean; expected a service time with a mean")
        return built

    @classmethod
    def exponential(cls, mean_s: float) -> ServiceLaw:
        """Return the exponential law of a mean in seconds."""
        from scipy.stats import expon

        return cls.from_distribution(expon(scale=positive("mean_s", mean_s)), name=f"exponential({mean_s:g} s)")

    @classmethod
    def deterministic(cls, seconds: float) -> ServiceLaw:
        """Return the law of one constant service time."""
        return cls.discrete([nonnegative("seconds", seconds)], [1.0])

    @classmethod
    def discrete(cls, sizes_s: Any, probabilities: Any, *, name: str = "discrete") -> ServiceLaw:
        """Return the law on given sizes (0 or more, seconds); probabilities must sum to 1 within 1e-9.

        Examples
        --------
        >>> ServiceLaw.discrete([1.0, 3.0], [0.5, 0.5]).mean_s
        2.0
        """
        sizes, masses = np.asarray(sizes_s, dtype=float), np.asarray(probabilities, dtype=float)
        if sizes.shape != masses.shape or sizes.ndim != 1 or not sizes.size:
            raise InputError(f"{sizes.size} sizes and {masses.size} probabilities given; expected as many, at least 1")
        if not (np.isfinite(sizes).all() and (sizes >= 0).all()):
            raise InputError("sizes_s has a negative or non-finite entry; expected seconds of 0 or more")
        if not (masses >= 0).all() or abs(math.fsum(masses) - 1) > 1e-9:
            raise InputError(
                f"probabilities sum to {math.fsum(masses):.9g}; expected numbers of 0 or more that sum to 1"
            )
        values, where = np.unique(sizes, return_inverse=True)
        total = np.bincount(where, weights=masses / math.fsum(masses))
        empty, flat = np.zeros(0), np.zeros((0, gauss()[0].size))
        return cls(name, empty, empty, flat, flat, values[total > 0], total[total > 0])

    @classmethod
    def from_lengths(cls, law: LengthLaw, *, seconds_per_token: float, setup_s: float = 0.0) -> ServiceLaw:
        """Return the law of setup_s + seconds_per_token * X, X a length in tokens.

        Lengths up to 32768 tokens are atoms of their own; longer ones are collected at their conditional means in
        blocks of 1/1024 of their length (relative error of the second moment below 1e-5, the mean is exact).
        """
        rate, setup = positive("seconds_per_token", seconds_per_token), nonnegative("setup_s", setup_s)
        if not math.isfinite(law.second_moment()):
            raise InputError(f"{law.describe()} has no finite second moment; clip it first")
        tokens, masses = length_atoms(law)
        return cls.discrete(setup + rate * tokens, masses / math.fsum(masses), name=law.describe())

    @classmethod
    def mixture(cls, laws: list[ServiceLaw], shares: list[float]) -> ServiceLaw:
        """Return the law that is laws[i] with probability shares[i] (scaled to sum 1).

        Examples
        --------
        >>> ServiceLaw.mixture([ServiceLaw.deterministic(1.0), ServiceLaw.exponential(3.0)], [1, 1]).mean_s
        2.0
        """
        q = np.array([nonnegative(f"shares[{i}]", s) for i, s in enumerate(shares)])
        if len(laws) != q.size or q.sum() <= 0:
            raise InputError(f"{len(laws)} laws and shares {shares}; expected as many, not all 0")
        q = q / q.sum()
        # on the union of all edges the panels, and so the nodes, of the laws are the same: masses add up
        edges = np.unique(np.concatenate([np.concatenate([law.left_s, law.right_s]) for law in laws]))
        panels: dict[tuple[float, float], Panel] = {}
        for law, share in zip(laws, q, strict=True):
            for a, b, x, w in zip(law.left_s, law.right_s, law.nodes_s, law.weights, strict=True):
                inner = edges[(edges >= a) & (edges <= b)]
                for low, high, nodes, weights in cut_panel(a, b, x, w, inner):
                    old = panels.get((low, high))
                    total = share * weights if old is None else old[3] + share * weights
                    panels[low, high] = (low, high, nodes, total)
        atoms = np.concatenate([law.atoms_s for law in laws])
        masses = np.concatenate([share * law.atom_masses for law, share in zip(laws, q, strict=True)])
        values, where = np.unique(atoms, return_inverse=True)
        empty, flat = np.zeros(0), np.zeros((0, gauss()[0].size))
        name, heavy = " + ".join(law.name for law in laws), any(law.heavy for law in laws)
        base = cls(name, empty, empty, flat, flat, values, np.bincount(where, masses, values.size).astype(float), heavy)
        return base._with_panels([panels[key] for key in sorted(panels)])

    def clipped(self, largest_s: float) -> ServiceLaw:
        """Return the law of min(S, largest_s): the mass above becomes an atom.

        Examples
        --------
        >>> round(ServiceLaw.exponential(1.0).clipped(1.0).mean_s, 12)  # 1 - 1/e
        0.632120558829
        """
        top = positive("largest_s", largest_s)
        law = self.split_at(top)
        inside, kept = law.right_s <= top, self.atoms_s < top
        rest = max(0.0, 1.0 - float(law.weights[inside].sum()) - float(self.atom_masses[kept].sum()))
        atoms, masses = np.append(self.atoms_s[kept], top), np.append(self.atom_masses[kept], rest)
        solid = masses > 1e-16
        return ServiceLaw(
            f"min({self.name}, {top:g} s)",
            law.left_s[inside],
            law.right_s[inside],
            law.nodes_s[inside],
            law.weights[inside],
            atoms[solid],
            masses[solid],
        )

    def affine(self, factor: float, shift_s: float = 0.0) -> ServiceLaw:
        """Return the law of factor*S + shift_s, factor > 0, shift_s >= 0."""
        f, c = positive("factor", factor), nonnegative("shift_s", shift_s)
        return ServiceLaw(
            f"{f:g} x {self.name} + {c:g} s" if c else f"{f:g} x {self.name}",
            f * self.left_s + c,
            f * self.right_s + c,
            f * self.nodes_s + c,
            self.weights,
            f * self.atoms_s + c,
            self.atom_masses,
            self.heavy,
        )

    def tilted(self, weight: Callable[[Any], Any]) -> ServiceLaw:
        """Return the law of S given an event of probability weight(x) at size x (0 to 1, vectorised)."""
        panels = np.asarray(weight(self.nodes_s), dtype=float) * self.weights
        atoms = np.asarray(weight(self.atoms_s), dtype=float) * self.atom_masses
        total = float(panels.sum() + atoms.sum())
        if not total > 0:
            raise InputError(f"weight gives no mass to {self.name}; expected an event of positive probability")
        return replace(self, weights=panels / total, atom_masses=atoms / total)

    def refined(self, ratio: float) -> ServiceLaw:
        """Return the same law on panels with right/left at most `ratio`, through the density's interpolant."""
        pieces = []
        for a, b, x, w in zip(self.left_s, self.right_s, self.nodes_s, self.weights, strict=True):
            count = 1 if a <= 0 else max(1, math.ceil(math.log(b / a) / math.log(ratio)))
            pieces += cut_panel(a, b, x, w, np.linspace(a, b, count + 1))
        return self._with_panels(pieces)

    def split_at(self, size_s: float) -> ServiceLaw:
        """Return the same law with a panel edge at a size, so that S <= size_s is a union of panels and atoms."""
        pieces = []
        for a, b, x, w in zip(self.left_s, self.right_s, self.nodes_s, self.weights, strict=True):
            edges = np.array([a, size_s, b] if a < size_s < b else [a, b])
            pieces += cut_panel(a, b, x, w, edges)
        return self._with_panels(pieces)

    def _with_panels(self, pieces: list[Panel]) -> ServiceLaw:
        if not pieces:
            return self
        left, right, nodes, weights = (np.array(v) for v in zip(*pieces, strict=True))
        return replace(self, left_s=left, right_s=right, nodes_s=nodes, weights=weights)

    # ------------------------------------------------------------------ moments

    def expectation(self, values: Any) -> float:
        """Return E[f(S)] for a vectorised function f of seconds."""
        total = 0.0
        if self.nodes_s.size:
            total += float(np.sum(self.weights * np.asarray(values(self.nodes_s), dtype=float)))
        if self.atoms_s.size:
            total += float(np.sum(self.atom_masses * np.asarray(values(self.atoms_s), dtype=float)))
        return total

    @property
    def mean_s(self) -> float:
        """E[S], seconds."""
        return self.expectation(lambda x: x)

    @property
    def second_moment_s2(self) -> float:
        """E[S^2], seconds squared; inf where the law has none."""
        return math.inf if self.heavy else self.expectation(lambda x: x * x)

    @property
    def scv(self) -> float:
        """Squared coefficient of variation, Var S / E[S]^2."""
        return max(self.second_moment_s2 / self.mean_s**2 - 1, 0.0)

    def finite_second_moment(self, formula: str) -> float:
        """Return E[S^2], or raise `InputError` naming the formula that needs it."""
        if self.heavy:
            raise InputError(f"{self.name} has no finite second moment, which {formula} needs; clip the law first")
        return self.second_moment_s2

    def survival(self, times_s: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time"]:
        """Return P(S > t) at each t, to quadrature accuracy (exact at atoms)."""
        above: np.ndarray = np.maximum(1 - self.truncated(times_s, 0), 0.0)
        return above

    def truncated(self, times_s: Float[np.ndarray, "time"], power: int) -> Float[np.ndarray, "time"]:
        """Return E[S^power; S <= t] at each t, exact at atoms, through the density's interpolant between nodes.

        Examples
        --------
        >>> law = ServiceLaw.exponential(1.0)
        >>> law.truncated(np.array([1.0]), 1).round(9).tolist()  # 1 - 2/e
        [0.264241118]
        """
        t = np.asarray(times_s, dtype=float)
        order = np.argsort(self.atoms_s, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum((self.atom_masses * self.atoms_s**power)[order])])
        at_atoms: np.ndarray = sums[np.searchsorted(self.atoms_s[order], t, side="right")]
        return at_atoms if not self.nodes_s.size else at_atoms + self._density_below(t, self.nodes_s**power)

    def _density_below(self, t: np.ndarray, values: np.ndarray) -> np.ndarray:
        base, quad = gauss()
        scaled = self.weights * values
        totals = scaled.sum(axis=1)
        before = np.concatenate([[0.0], np.cumsum(totals)[:-1]])
        panel = np.clip(np.searchsorted(self.left_s, t, side="right") - 1, 0, self.left_s.size - 1)
        left, right = self.left_s[panel], self.right_s[panel]
        u = np.clip(2 * (t - left) / (right - left) - 1, -1.0, 1.0)
        basis = np.polynomial.legendre.legvander(u, base.size)
        order = np.arange(1, base.size)
        integrals = np.concatenate([(u + 1)[:, None], (basis[:, 2:] - basis[:, :-2]) / (2 * order + 1)], axis=1)
        inside = np.sum(integrals * ((scaled / quad)[panel] @ to_legendre()), axis=1)
        out: np.ndarray = before[panel] + np.clip(inside, 0.0, totals[panel])
        return out

    def points(self) -> SizePoints:
        """Return the law as points with masses and truncated moments."""
        return size_points(self.left_s, self.right_s, self.nodes_s, self.weights, self.atoms_s, self.atom_masses)


def _name(law: Density) -> str:
    inner = getattr(getattr(law, "dist", None), "name", None)
    return str(inner) if inner else type(law).__name__


def stable_load(rate_per_s: float, law: ServiceLaw) -> tuple[float, float]:
    """Return (rate, load), or raise `InputError` where the load is 1 or more."""
    instance("service", law, ServiceLaw)
    rate = nonnegative("rate_per_s", rate_per_s)
    load = rate * law.mean_s
    if load >= 1:
        raise InputError(
            f"load rate_per_s * E[S] is {load:.6g} (rate {rate:.6g}/s, mean service {law.mean_s:.6g} s); "
            f"expected a load below 1: the rate must be below {1 / law.mean_s:.6g}/s"
        )
    return rate, finite("load", load)
