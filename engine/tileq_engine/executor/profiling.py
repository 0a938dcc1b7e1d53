"""The executor's own iteration times: batches of chosen composition through the real forward, beside the probe.

A batch is prepared once (requests, blocks, histories) and run in turn with others through `Executor.run`: building the
batch, the forward, the choice of tokens. Each run stands beside the probe, smoothed, and counts as its time over the
probe's; a point is the median of these ratios at the reference speed. What the loop around it costs (the decision,
the completion, the clock) is measured by `rehearsal.loop_overhead_s` and added to every point.
"""

from __future__ import annotations

__all__ = ["Design", "Formed", "ProfilePoint", "measure_points", "profile_executor", "spread_designs"]

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tileq_engine.executor.backend import Backend
from tileq_engine.executor.clocks import Probe
from tileq_engine.executor.executor import Executor
from tileq_engine.executor.sampling import FIXED_LENGTH
from tileq_engine.scheduler import Batch
from tileq_theory.errors import InputError, positive

_WARM_UPS = 2
_FEWEST, _MOST = 5, 60
_GROUP = 12
_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Design:
    """A batch to measure.

    Parameters
    ----------
    chunk_tokens, pieces, history_tokens
        Prefill tokens, the prompts they belong to, and the tokens of each that are cached already.
    decodes, context_tokens
        Decoding sequences and their mean context; contexts are spread evenly over half to one and a half times it.
    """

    chunk_tokens: int = 0
    pieces: int = 1
    history_tokens: int = 0
    decodes: int = 0
    context_tokens: int = 16

    @property
    def tokens(self) -> int:
        """Tokens through the model."""
        return self.chunk_tokens + self.decodes

    def chunks(self) -> list[tuple[int, int]]:
        """Return the prefill tokens of each prompt, and those of it that are cached."""
        if not self.chunk_tokens:
            return []
        edges = np.linspace(0, self.chunk_tokens, min(self.pieces, self.chunk_tokens) + 1).round().astype(int)
        return [(int(c), self.history_tokens) for c in np.diff(edges)]

    def contexts(self) -> list[int]:
        """Return the cached tokens of each decode before it runs."""
        low, high = 0.5 * self.context_tokens, 1.5 * self.context_tokens
        return [max(1, int(c)) for c in np.linspace(low, high, self.decodes)]


@dataclass(frozen=True, slots=True)
class Formed:
    """A batch that a policy has formed: its chunks (new and cached tokens of each), the contexts of its decodes."""

    pieces: tuple[tuple[int, int], ...]
    held: tuple[int, ...]

    @property
    def decodes(self) -> int:
        """Decoding sequences."""
        return len(self.held)

    @property
    def tokens(self) -> int:
        """Tokens through the model."""
        return sum(c for c, _ in self.pieces) + len(self.held)

    def chunks(self) -> list[tuple[int, int]]:
        """Return the chunks."""
        return list(self.pieces)

    def contexts(self) -> list[int]:
        """Return the contexts."""
        return list(self.held)


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """A measured batch: its composition as an `IterationTime` takes it, and its time.

    `formed` tells a batch as a policy forms it from one that was designed.
    """

    tokens: int
    pairs: float
    kv_tokens: int
    sequences: int
    prefill_tokens: int
    seconds: float
    raw_seconds: float
    repeats: int
    probe_s: float
    formed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def spread_designs(
    most_tokens: int, most_sequences: int, longest_context: int, count: int = 40, seed: int = 0
) -> list[Design]:
    """Return designs that fill what a run can form: decodes alone, prompts alone, and both, in turn.

    Sizes are spread evenly on a logarithmic scale over what the limits allow, in an order that covers the whole range
    again and again, so that a session cut short has seen all of it.
    """
    random = np.random.default_rng(seed)
    found = [
        Design(decodes=1, context_tokens=max(2, longest_context // 4)),
        Design(decodes=min(most_sequences, most_tokens), context_tokens=max(2, longest_context // 3)),
        _prompts(most_tokens, 1, 0, most_sequences, longest_context),
    ]
    while len(found) < count:
        kind, u = len(found) % 3, random.random(4)
        context = max(2, round(longest_context * (0.1 + 0.55 * u[0])))
        decodes = max(1, min(most_tokens - 1, round(most_sequences ** (0.2 + 0.8 * u[1]))))
        chunk = max(1, round(most_tokens ** (0.2 + 0.8 * u[2])))
        history = round(longest_context * 0.5 * u[3]) if u[3] > 0.5 else 0
        pieces = int(random.integers(1, 5))
        if kind == 0 or (kind == 2 and most_sequences == 1):
            found.append(Design(decodes=decodes, context_tokens=context))
        elif kind == 1:
            found.append(_prompts(chunk, pieces, history, most_sequences, longest_context))
        else:
            decodes = min(decodes, most_sequences - 1)
            alone = _prompts(
                min(chunk, most_tokens - decodes), pieces, history, most_sequences - decodes, longest_context
            )
            found.append(replace(alone, decodes=decodes, context_tokens=context))
    return found


def _prompts(chunk: int, pieces: int, history: int, most_sequences: int, longest_context: int) -> Design:
    """Return prompts of `chunk` tokens in all, at least as many as keep each within the longest context."""
    each = max(1, longest_context - history)
    chunk = max(1, min(chunk, most_sequences * each))
    return Design(chunk, max(1, min(max(pieces, -(-chunk // each)), most_sequences, chunk)), history)


def prepared(executor: Executor, design: Design | Formed) -> Batch:
    """Return the batch of a design, its requests known to the executor and their blocks taken."""
    ids, prefill, decode, context = list[int](), list[int](), list[int](), list[int]()
    vocabulary = executor.backend.vocab_size
    random = np.random.default_rng(design.tokens)
    for chunk, history in design.chunks():
        prompt = random.integers(0, vocabulary, history + chunk, dtype=np.int32)
        ids.append(executor.histories.add(prompt, 1))
        prefill, decode, context = [*prefill, chunk], [*decode, 0], [*context, history]
    for held in design.contexts():
        ids.append(executor.histories.add(random.integers(0, vocabulary, held + 1, dtype=np.int32), 1))
        prefill, decode, context = [*prefill, 0], [*decode, 1], [*context, held]
    for _ in ids:
        executor.sampling.add(FIXED_LENGTH, ())
    columns = [np.array(c, dtype=np.int64) for c in (ids, prefill, decode, context)]
    return Batch(columns[0], columns[1], columns[2], columns[3], _NOTHING, _NOTHING.astype(bool))


def composition(batch: Batch) -> tuple[int, float, int, int]:
    """Return (n, A, K, m) of a batch."""
    c, h = batch.prefill_tokens, batch.context_tokens
    pairs = float((c * (h + (c + 1) / 2)).sum())
    kv = int(((h + 1) * batch.decode).sum())
    return int((c + batch.decode).sum()), pairs, kv, len(batch)


@dataclass(slots=True)
class _Point:
    """A design under measurement: its batch, and the ratios and times of its runs so far."""

    design: Design | Formed
    batch: Batch
    ratios: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)

    def run(self, executor: Executor, probe: Probe, now_ns: Callable[[], int], extra_s: float) -> None:
        """Run the batch once beside the probe."""
        speed = probe.once()
        start = now_ns()
        outcome = executor.run(self.batch)
        took = (now_ns() - start) / 1e9 + extra_s
        executor.histories.length[outcome.requests] -= 1  # the same batch again
        self.ratios.append(took / (speed / probe.reference_ns))
        self.raw.append(took)
        self.probes.append(speed / 1e9)

    @property
    def done(self) -> bool:
        """Whether its median is known well enough."""
        return len(self.ratios) >= _MOST or _known(self.ratios)

    def result(self) -> ProfilePoint:
        """Return the point, without its first runs."""
        n, pairs, kv, m = composition(self.batch)
        return ProfilePoint(
            tokens=n,
            pairs=pairs,
            kv_tokens=kv,
            sequences=m,
            prefill_tokens=int(self.batch.prefill_tokens.sum()),
            seconds=float(np.median(self.ratios[_WARM_UPS:])),
            raw_seconds=float(np.median(self.raw[_WARM_UPS:])),
            repeats=len(self.ratios) - _WARM_UPS,
            probe_s=float(np.median(self.probes[_WARM_UPS:])),
            formed=isinstance(self.design, Formed),
        )


def measure_points(
    backend: Backend,
    designs: Sequence[Design | Formed],
    probe: Probe,
    now_ns: Callable[[], int],
    *,
    most_s: float,
    extra_s: float = 0.0,
) -> list[ProfilePoint]:
    """Run some designs in turn, one after another and again, until their medians are known or for `most_s` seconds.

    In turn, as in a run no batch follows itself: caches are as cold, and a drift meets all alike.
    """
    executor = Executor(backend, sum(d.decodes + len(d.chunks()) for d in designs))
    points = [_Point(design, prepared(executor, design)) for design in designs]
    begun = time.monotonic()
    least = _WARM_UPS + _FEWEST
    while open_ := [p for p in points if not p.done]:
        for point in open_:
            point.run(executor, probe, now_ns, extra_s)
            if len(point.ratios) > least and time.monotonic() - begun > most_s:
                break
        if min(len(p.ratios) for p in points) >= least and time.monotonic() - begun > most_s:
            break
    return [p.result() for p in points]


def _known(values: Sequence[float], precision: float = 0.01) -> bool:
    """Return whether the median's 95 % interval is within `precision` of it, by order statistics."""
    r = len(values)
    low = int((r - 1.96 * r**0.5) / 2)
    if r < 8 or low < 1:
        return False
    ordered = sorted(values)
    return (ordered[r - 1 - low] - ordered[low]) / 2 <= precision * ordered[r // 2]


def profile_executor(
    backend: Backend,
    probe: Probe,
    *,
    most_tokens: int,
    most_sequences: int,
    longest_context: int,
    budget_s: float = 60.0,
    count: int = 40,
    extra_s: float = 0.0,
    designs: Sequence[Design | Formed] | None = None,
    seed: int = 0,
    on_point: Callable[[ProfilePoint], None] | None = None,
) -> list[ProfilePoint]:
    """Measure designs one after another within `budget_s` seconds; each is handed to `on_point` as it is known."""
    positive("budget_s", budget_s)
    if not probe.reference_ns:
        probe.set_reference()
    chosen: list[Design | Formed] = list(
        designs or spread_designs(most_tokens, most_sequences, longest_context, count, seed)
    )
    cuda = bool(backend.describe().get("cuda"))
    now = time.perf_counter_ns if cuda else time.thread_time_ns
    begun, points = time.monotonic(), list[ProfilePoint]()
    groups = _groups(chosen, backend)
    for place, group in enumerate(groups):
        left = budget_s - (time.monotonic() - begun)
        if left <= 0 and len(points) >= _FEWEST:
            break
        share = max(left, 0.0) * len(group) / sum(len(g) for g in groups[place:])
        found = measure_points(backend, group, probe, now, most_s=share, extra_s=extra_s)
        points += found
        for point in found:
            if on_point is not None:
                on_point(point)
    if not points:
        raise InputError("no batch was measured; give more time or fewer limits")
    return points


def _groups(designs: Sequence[Design | Formed], backend: Backend) -> list[list[Design | Formed]]:
    """Return the designs in groups whose blocks fit the cache together, in their order, of at most a dozen."""
    groups, used = [list[Design | Formed]()], 0
    for design in designs:
        held = [c + 1 for c in design.contexts()] + [c + history for c, history in design.chunks()]
        blocks = sum(-(-h // backend.block_tokens) for h in held)
        if groups[-1] and (used + blocks > backend.blocks or len(groups[-1]) == _GROUP):
            groups.append([])
            used = 0
        groups[-1].append(design)
        used += blocks
    return groups
