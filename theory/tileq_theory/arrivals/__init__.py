"""Arrival processes."""

from tileq_theory.arrivals.base import ArrivalProcess
from tileq_theory.arrivals.burst_fit import fit_on_off
from tileq_theory.arrivals.deterministic import Deterministic
from tileq_theory.arrivals.gamma import GammaArrivals
from tileq_theory.arrivals.on_off import OnOff
from tileq_theory.arrivals.poisson import Poisson
from tileq_theory.arrivals.trace import TraceArrivals

__all__ = ["ArrivalProcess", "Deterministic", "GammaArrivals", "OnOff", "Poisson", "TraceArrivals", "fit_on_off"]
