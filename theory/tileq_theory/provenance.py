"""Where a number came from, and how far it may be trusted."""

from __future__ import annotations

__all__ = ["EXACT", "ErrorBand", "Provenance"]

from dataclasses import dataclass, field

from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True)
class ErrorBand:
    r"""Band of the ratio (true iteration time) / (modelled iteration time).

    A capacity computed from the model lies in [lambda*/high, lambda*/low], because lambda* scales
    as the inverse of time (`theory.md` section 3).

    Parameters
    ----------
    low, high
        Ratio bounds, 0 < low <= high (dimensionless). 1.0 and 1.0 for a model that is exact by definition.
    coverage
        Share of measured points that lay inside the band, in [0, 1].
    basis
        One sentence: on which measurements the band rests.
    """

    low: float = 1.0
    high: float = 1.0
    coverage: float = 1.0
    basis: str = "exact by definition"

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < float("inf"):
            raise InputError(f"error band is [{self.low}, {self.high}]; expected 0 < low <= high < inf")
        if not 0 <= self.coverage <= 1:
            raise InputError(f"error band coverage is {self.coverage}; expected a share in [0, 1]")

    def of_rate(self, rate_per_s: float) -> tuple[float, float]:
        """Return the interval of a capacity `rate_per_s` computed with the model."""
        return rate_per_s / self.high, rate_per_s / self.low

    def to_dict(self) -> dict[str, object]:
        """Return the band as plain data."""
        return {"low": self.low, "high": self.high, "coverage": self.coverage, "basis": self.basis}


EXACT = ErrorBand()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a number came from.

    Parameters
    ----------
    kind
        "formula", "datasheet", "measured", "fitted" or "assumed".
    source
        Citation, file or catalogue row.
    notes
        Further facts a reader needs (assumptions, versions, conditions), one short sentence each.
    """

    kind: str = "formula"
    source: str = ""
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """Return the provenance as plain data."""
        return {"kind": self.kind, "source": self.source, "notes": list(self.notes)}
