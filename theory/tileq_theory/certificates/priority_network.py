r"""Fluid modes of a multi-class network whose stations serve by a static priority.

Class k is served at station s(k), m_k units of time a job (rate mu_k = 1/m_k at full effort), and moves on to class
next(k) or leaves. Fluid content x_k, effort u_k of its station:

    dx_k/dt = a_k + sum_{j -> k} mu_j u_j - mu_k u_k

While the positive contents are exactly S, a class outside S stays at 0, so what flows in flows out; the first class of
S in a station's order takes all the effort that the classes before it leave; those after it get none, and may stay at
0 only while nothing flows in. A support S with an effort of 0 or more that satisfies this is a mode; all of them
together are all the fluid's ways to move.
"""

from __future__ import annotations

__all__ = ["PriorityNetwork", "ServiceClass", "lu_kumar", "rybko_stolyar"]

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from tileq_theory.certificates.linear_exact import vertices
from tileq_theory.certificates.modes import FluidModes, Mode, Number, exact
from tileq_theory.errors import InputError

_MOST_CLASSES = 8


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """One class of a network.

    Parameters
    ----------
    station
        Name of the station that serves it.
    service
        m, mean time of a job at full effort, above 0.
    arrivals
        a, jobs that arrive from outside a unit of time, 0 or more.
    following
        Number of the class a job turns into, None: it leaves.
    """

    station: str
    service: Number
    arrivals: Number = 0
    following: int | None = None


@dataclass(frozen=True, slots=True)
class PriorityNetwork:
    """A network and its priority order.

    Parameters
    ----------
    classes
        1 to 8 classes, numbered from 0.
    priority
        All class numbers; of two classes at one station the one named first goes first. None: any work-conserving
        policy - every mode that one of them can have.

    Raises
    ------
    InputError
        A number outside its domain, a route that never leaves, an order that does not name each class once.

    Examples
    --------
    >>> network = rybko_stolyar(rates=(1, 1), services=(Fraction(1, 10), Fraction(3, 5)), exit_first=True)
    >>> network.loads()["A"], network.virtual_load([1, 3])
    (Fraction(7, 10), Fraction(6, 5))
    """

    classes: tuple[ServiceClass, ...]
    priority: tuple[int, ...] | None

    def __post_init__(self) -> None:
        count = len(self.classes)
        if not 1 <= count <= _MOST_CLASSES:
            raise InputError(f"classes has {count} entries; expected 1 to {_MOST_CLASSES}")
        if self.priority is not None and sorted(self.priority) != list(range(count)):
            raise InputError(f"priority is {list(self.priority)}; expected each of 0 to {count - 1} once")
        for k, one in enumerate(self.classes):
            if exact(f"service of class {k}", one.service) <= 0:
                raise InputError(f"service of class {k} is {one.service!r}; expected a number above 0")
            if exact(f"arrivals of class {k}", one.arrivals) < 0:
                raise InputError(f"arrivals of class {k} is {one.arrivals!r}; expected a number of 0 or more")
            if one.following is not None and not 0 <= one.following < count:
                raise InputError(f"class {k} turns into {one.following}; expected a class number below {count}")
            self._leaves(k)

    def _leaves(self, start: int) -> None:
        here, steps = start, 0
        while (following := self.classes[here].following) is not None:
            here, steps = following, steps + 1
            if steps > len(self.classes):
                raise InputError(f"class {start} never leaves; expected a route that ends (spectral radius below 1)")

    def rates(self) -> tuple[Fraction, ...]:
        """Return the jobs of each class that pass a unit of time, by the traffic equations."""
        totals = [exact("arrivals", c.arrivals) for c in self.classes]
        for k, one in enumerate(self.classes):
            following = one.following
            while following is not None:
                totals[following] += exact(f"arrivals of class {k}", one.arrivals)
                following = self.classes[following].following
        return tuple(totals)

    def loads(self) -> dict[str, Fraction]:
        """Return each station's nominal load, sum of rate x m over its classes."""
        loads: dict[str, Fraction] = {}
        for one, rate in zip(self.classes, self.rates(), strict=True):
            loads[one.station] = loads.get(one.station, Fraction(0)) + rate * exact("service", one.service)
        return loads

    def virtual_load(self, classes: Sequence[int]) -> Fraction:
        """Return sum of rate x m over classes that are never served at the same time (a virtual station)."""
        rates = self.rates()
        return sum((rates[k] * exact("service", self.classes[k].service) for k in classes), Fraction(0))

    def modes(self) -> FluidModes:
        """Return the modes of the fluid model; the contents are counted in jobs."""
        found = []
        count = len(self.classes)
        for size in range(1, count + 1):
            for chosen in combinations(range(count), size):
                name = "+".join(str(k) for k in chosen)
                drifts = sorted({self._drift(effort) for effort in self._efforts(frozenset(chosen))})
                for number, drift in enumerate(drifts):
                    # a starved class outside the support that fills up ends the mode at once: another is in force
                    if all(drift[k] == 0 for k in range(count) if k not in chosen):
                        found.append(Mode(name if len(drifts) == 1 else f"{name} ({number + 1})", drift, chosen))
        names = tuple(f"class {k} at {c.station} (jobs)" for k, c in enumerate(self.classes))
        return FluidModes(names, tuple(found))

    def _efforts(self, support: frozenset[int]) -> list[tuple[Fraction, ...]]:
        """Return the efforts (vertices of their polytope) that keep exactly `support` positive."""
        equal = [self._balance(k) for k in range(len(self.classes)) if k not in support]
        at_most = []
        for station in dict.fromkeys(c.station for c in self.classes):
            here = [k for k, c in enumerate(self.classes) if c.station == station]
            whole = [Fraction(int(k in here)) for k in range(len(self.classes))] + [Fraction(1)]
            if not support & set(here):
                at_most.append(whole)
                continue
            equal.append(whole)
            if self.priority is not None:
                order = [k for k in self.priority if k in here]
                first = next(n for n, k in enumerate(order) if k in support)
                for k in order[first + 1 :]:
                    starved = [Fraction(int(j == k)) for j in range(len(self.classes))] + [Fraction(0)]
                    # of a starved class outside the support the balance would say the same where it can be kept
                    equal = [row for row in equal if k in support or row != self._balance(k)] + [starved]
        if len(equal) > len(self.classes):
            return []
        return sorted(vertices(equal, at_most, len(self.classes)))

    def _balance(self, k: int) -> list[Fraction]:
        """Return the row: what flows into class k flows out."""
        row = [Fraction(0)] * len(self.classes) + [exact(f"arrivals of class {k}", self.classes[k].arrivals)]
        row[k] += 1 / exact("service", self.classes[k].service)
        for j, one in enumerate(self.classes):
            if one.following == k:
                row[j] -= 1 / exact("service", one.service)
        return row

    def _drift(self, effort: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        """Return arrivals and inflow less outflow: the balance rows, missed by as much as the content changes."""
        rows = [self._balance(k) for k in range(len(self.classes))]
        return tuple(row[-1] - sum((a * u for a, u in zip(row, effort, strict=False)), Fraction(0)) for row in rows)


def rybko_stolyar(
    *, rates: tuple[Number, Number], services: Sequence[Number], exit_first: bool = True
) -> PriorityNetwork:
    r"""Return the network of Rybko and Stolyar: two routes through two stations in opposite directions.

    Classes 0 (station A) -> 1 (B) and 2 (B) -> 3 (A). With the exit classes 1 and 3 first, jobs of 1 and of 3 are never
    served at the same time, so a_0 m_1 + a_2 m_3 < 1 is needed beside the nominal loads (a virtual station); together
    they suffice. With the entry classes first the nominal loads suffice.

    Parameters
    ----------
    rates
        a_0, a_2: arrivals a unit of time on the two routes.
    services
        (m of the entry classes, m of the exit classes), or (m_0, m_1, m_2, m_3).
    exit_first
        Priority to the exit classes (True) or the entry classes.

    References
    ----------
    Rybko and Stolyar, Problems of Information Transmission 28, 1992; Dai and Vande Vate, Operations Research 48, 2000;
    as an LLM network: Dai et al., arXiv 2504.07347, section 5.4.

    Examples
    --------
    Dai's instance: 768 tokens an iteration, requests of 32 + 32 tokens, then 512 + 32, at .9 of the nominal boundary.

    >>> from tileq_theory.certificates import certify
    >>> rate = Fraction(9, 10) * Fraction(768, 608)
    >>> network = rybko_stolyar(rates=(rate, rate), services=(Fraction(64, 768), Fraction(544, 768)))
    >>> proof = certify(network.modes())
    >>> proof.verdict, round(float(proof.cycle.factor), 4)
    ('unstable', 17.0993)
    """
    if len(services) not in (2, 4):
        raise InputError(f"services has {len(services)} entries; expected 2 (entry, exit) or 4")
    m = list(services) if len(services) == 4 else [services[0], services[1], services[0], services[1]]
    classes = (
        ServiceClass("A", m[0], rates[0], 1),
        ServiceClass("B", m[1]),
        ServiceClass("B", m[2], rates[1], 3),
        ServiceClass("A", m[3]),
    )
    return PriorityNetwork(classes, (1, 3, 0, 2) if exit_first else (0, 2, 1, 3))


def lu_kumar(
    *, rate: Number, services: Sequence[Number], priority: Sequence[int] | None = (3, 1, 0, 2)
) -> PriorityNetwork:
    r"""Return the network of Lu and Kumar: one route, station A, B, B, A.

    Classes 0 (A) -> 1 (B) -> 2 (B) -> 3 (A). With priority to 3 and to 1 (the default), classes 1 and 3 are never
    served at the same time: a (m_1 + m_3) < 1 is needed beside the nominal loads, and they suffice together.

    Parameters
    ----------
    rate
        a, arrivals a unit of time.
    services
        (m_0, m_1, m_2, m_3).
    priority
        All four classes, first to last; None: any work-conserving policy.

    References
    ----------
    Lu and Kumar, IEEE Transactions on Automatic Control 36, 1991; Dai and Weiss, Mathematics of Operations Research 21,
    1996.

    Examples
    --------
    >>> from tileq_theory.certificates import certify
    >>> certify(lu_kumar(rate=1, services=[0.1, 0.6, 0.1, 0.6]).modes()).verdict
    'unstable'
    >>> certify(lu_kumar(rate=1, services=[0.1, 0.4, 0.1, 0.4]).modes()).verdict
    'stable'
    """
    if len(services) != 4:
        raise InputError(f"services has {len(services)} entries; expected 4")
    stations = ("A", "B", "B", "A")
    classes = tuple(
        ServiceClass(stations[k], services[k], rate if k == 0 else 0, k + 1 if k < 3 else None) for k in range(4)
    )
    return PriorityNetwork(classes, None if priority is None else tuple(priority))
