"""What a request trace holds once read: lengths, arrivals and what had to be left out.

Lengths are whole numbers of tokens, arrivals are seconds from the first one. Nothing is dropped, sorted or
guessed in silence: `skipped` counts what was left out and why, `warnings` says what else a reader should know.
"""

from __future__ import annotations

__all__ = ["Label", "PrefixBlocks", "Trace"]

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_theory.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """One categorical column of a trace: `values[codes[i]]` is what request i carries (model, session, type)."""

    name: str
    values: tuple[str, ...]
    codes: Int[np.ndarray, "request"]

    def of(self, request: int) -> str:
        """Return the value of one request."""
        return self.values[int(self.codes[request])]


@dataclass(frozen=True, slots=True, eq=False)
class PrefixBlocks:
    """Prompt prefixes as block identities: request i holds `ids[offsets[i]:offsets[i + 1]]`, first block first.

    Two requests that start with the same identities share that many blocks of `block_tokens` tokens.
    """

    ids: Int[np.ndarray, "block"]
    offsets: Int[np.ndarray, "edge"]
    block_tokens: int

    def of(self, request: int) -> Int[np.ndarray, "own"]:
        """Return the block identities of one request."""
        return self.ids[self.offsets[request] : self.offsets[request + 1]]

    def take(self, rows: Int[np.ndarray, "kept"]) -> PrefixBlocks:
        """Return the blocks of the named requests, in that order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        start = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return PrefixBlocks(self.ids[start + np.arange(int(offsets[-1]))], offsets, self.block_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests read from a file, in order of arrival (in the file's order where it has no arrivals).

    Parameters
    ----------
    prompt_tokens, output_tokens
        Lengths in tokens, each at least 1.
    arrival_s
        Seconds from the first arrival, never falling; None when the file records none.
    source
        The file's name and the format it was read as.
    format
        Name in `reader_names()`.
    skipped
        (reason, rows) for every row left out.
    warnings
        What a user should know before relying on the numbers.
    blocks
        Prefix block identities, where the format has them.
    labels
        Categorical columns (model, session, type), where the format has them.

    Examples
    --------
    >>> lengths = np.array([10, 30])
    >>> trace = Trace(lengths, lengths, np.array([0.0, 2.0]), "a.csv (azure-2023)", "azure-2023", (), ())
    >>> trace.count, trace.duration_s, trace.rate_per_s
    (2, 2.0, 0.5)
    """

    prompt_tokens: Int[np.ndarray, "request"]
    output_tokens: Int[np.ndarray, "request"]
    arrival_s: Float[np.ndarray, "request"] | None
    source: str
    format: str
    skipped: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]
    blocks: PrefixBlocks | None = None
    labels: tuple[Label, ...] = ()

    def __post_init__(self) -> None:
        count = self.prompt_tokens.size
        arrays = [self.output_tokens, *(label.codes for label in self.labels)]
        arrays += [] if self.arrival_s is None else [self.arrival_s]
        if not count or any(array.size != count for array in arrays):
            raise InputError(f"{self.source}: {count} prompt lengths; expected one entry a request in every column")
        if min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise InputError(f"{self.source}: a length below 1; expected whole numbers of tokens")
        if self.arrival_s is not None and not (self.arrival_s[0] == 0 and np.all(np.diff(self.arrival_s) >= 0)):
            raise InputError(f"{self.source}: arrivals out of order; expected seconds from the first, never falling")

    @property
    def count(self) -> int:
        """Number of requests."""
        return int(self.prompt_tokens.size)

    @property
    def duration_s(self) -> float | None:
        """Seconds between the first and the last arrival; None without arrivals."""
        return None if self.arrival_s is None else float(self.arrival_s[-1])

    @property
    def rate_per_s(self) -> float | None:
        """Gaps over duration, (count - 1) / duration; None without two distinct arrivals."""
        duration = self.duration_s
        return (self.count - 1) / duration if duration else None

    @property
    def interarrival_cv(self) -> float | None:
        """Standard deviation of the gaps over their mean (1 for Poisson); None with fewer than two gaps."""
        if self.arrival_s is None or self.count < 3:
            return None
        gaps = np.diff(self.arrival_s)
        mean = float(gaps.mean())
        return float(gaps.std()) / mean if mean > 0 else None

    def label(self, name: str) -> Label:
        """Return the label of that name, or raise `InputError` naming those there are."""
        for label in self.labels:
            if label.name == name:
                return label
        known = ", ".join(label.name for label in self.labels) or "none"
        raise InputError(f"{self.source} has no label {name!r}; it has: {known}")

    def spread_arrivals(self, seed: int) -> Trace:
        """Return the trace with equal arrivals spread uniformly up to the next distinct one.

        For traces whose clock ticks more slowly than requests come (Mooncake: about 3 s): their gaps say nothing
        below the tick. Arrivals that share the last tick are spread over the median tick.
        """
        if self.arrival_s is None:
            raise InputError(f"{self.source} has no arrivals to spread; pass a rate instead")
        ticks, where = np.unique(self.arrival_s, return_inverse=True)
        widths = np.diff(ticks)
        last = float(np.median(widths)) if widths.size else 0.0
        width = np.append(widths, last)[where]
        spread = np.sort(self.arrival_s + np.random.default_rng(seed).uniform(size=self.count) * width)
        note = f"arrivals spread uniformly within their ticks (seed {seed})"
        return replace(self, arrival_s=spread - spread[0], warnings=(*self.warnings, note))

    def to_workload(self, *, by: str | None = None, arrivals: bool = True) -> Workload:
        """Return the `tileq_theory` workload of these requests: recorded pairs stay pairs.

        Parameters
        ----------
        by
            Name of a label: one request class per value of it, shares as counted; one class in all when None.
        arrivals
            Whether the recorded gaps come along; a trace without two distinct arrivals has none to bring.

        Raises
        ------
        InputError
            When there is no such label.
        """
        from tileq_theory.arrivals import TraceArrivals
        from tileq_theory.lengths import Pairs
        from tileq_theory.provenance import Provenance
        from tileq_theory.request_class import RequestClass
        from tileq_theory.workload import Workload

        notes = tuple(f"{count} row{'' if count == 1 else 's'} left out: {reason}" for reason, count in self.skipped)
        provenance = Provenance("measured", self.source, notes + self.warnings)
        times = self.arrival_s if arrivals and self.duration_s else None
        if by is None:
            return Workload.from_lengths(
                self.prompt_tokens, self.output_tokens, times, name=self.source, provenance=provenance
            )
        label = self.label(by)
        classes = []
        for code, value in enumerate(label.values):
            own = label.codes == code
            if count := int(np.count_nonzero(own)):
                pairs = Pairs(self.prompt_tokens[own], self.output_tokens[own])
                classes.append(RequestClass(value or f"no {by}", pairs, share=count))
        gaps = TraceArrivals(times) if times is not None else None
        return Workload(classes, gaps, self.source, provenance)

    def describe(self) -> str:
        """Return one line: source, count, mean lengths and arrivals."""
        line = (
            f"{self.source}: {self.count} requests, prompt mean {self.prompt_tokens.mean():.0f}, "
            f"output mean {self.output_tokens.mean():.0f} tokens"
        )
        if self.arrival_s is None:
            return f"{line}, no arrivals"
        rate, cv = self.rate_per_s, self.interarrival_cv
        line += "" if rate is None else f", {rate:.3g}/s"
        return line if cv is None else f"{line}, inter-arrival CV {cv:.3g}"
