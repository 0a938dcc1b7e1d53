"""Which requests a question is about: a trace, a named mix or classes, and the rate at which they come."""

from __future__ import annotations

__all__ = ["DEFAULT_WORKLOAD", "Traffic", "make_traffic"]

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from tileq.words import counted
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_profiling.readers import Trace
    from tileq_theory.prefix_cache import Conversations
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

DEFAULT_WORKLOAD = "chat"
CONVERSATIONS = "conversations"


@dataclass(frozen=True, slots=True)
class Traffic:
    """A workload with where it came from.

    Parameters
    ----------
    workload
        Classes, mix and arrivals.
    label
        Short name for headings and figures.
    source
        Where it came from, one phrase.
    rate_per_s
        Rate recorded with it, if any (a trace's own arrivals).
    warnings
        What a reader of the numbers should know.
    prefixes
        What tells which prompts share a prefix: a `Trace` with block identities, `Conversations`, or None.
    source_of_blocks
        What draws its requests with the blocks of their prompts, for a prefix cache (`ReplayedRequests`,
        `Conversations`); None where prompts are known by their lengths alone.
    """

    workload: Workload
    label: str
    source: str
    rate_per_s: float | None = None
    warnings: tuple[str, ...] = ()
    prefixes: Trace | Conversations | None = None
    source_of_blocks: Any = None


def make_traffic(
    trace: str | PathLike[str] | Any | None = None,
    workload: str | Workload | None = None,
    classes: Sequence[str | RequestClass] | None = None,
    conversations: str | Conversations | None = None,
) -> Traffic:
    """Return the traffic that one of the four describes; the shipped chat mix when none is given.

    Raises
    ------
    InputError
        More than one of them given, an unknown name, a malformed class, an unreadable or empty trace.
    """
    given = {"trace": trace is not None, "workload": workload is not None, "classes": bool(classes)}
    given["conversations"] = conversations is not None
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise InputError(f"{' and '.join(named)} are given; expected one of trace, workload, classes and conversations")
    if trace is not None:
        return _from_trace(trace)
    if conversations is not None:
        return _from_conversations(conversations)
    if classes:
        return _from_classes(classes)
    return _named(DEFAULT_WORKLOAD if workload is None else workload)


def _from_trace(trace: Any) -> Traffic:
    from tileq_profiling.readers import Trace, read_trace

    read = trace if isinstance(trace, Trace) else read_trace(trace)
    skipped = [f"{counted(rows, 'row')} of {read.source} left out: {reason}" for reason, rows in read.skipped]
    return Traffic(
        workload=read.to_workload(),
        label=read.source.split(" (")[0],
        source=f"trace {read.source}, {read.count:,} requests",
        rate_per_s=read.rate_per_s,
        warnings=(*skipped, *read.warnings),
        prefixes=None if read.blocks is None or not read.blocks.ids.size else read,
        source_of_blocks=_replay(read),
    )


def _from_conversations(given: str | Conversations) -> Traffic:
    import numpy as np

    from tileq.talks import read_conversations
    from tileq_theory.lengths import Pairs
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

    talks = read_conversations(given)
    label = f"conversations of {talks.drawn.turns_mean:g} turns"
    if talks.exact:
        prompts, share = talks.law.turn_prompts()
        answers = np.full(prompts.size, max(1, round(talks.law.answer_tokens)))
        turns = Pairs(np.maximum(np.round(prompts), 1).astype(np.int64), answers, share)
        workload = Workload((RequestClass("turns", turns),))
    else:
        workload = talks.drawn.workload()
    return Traffic(workload, label, "synthetic conversations", prefixes=talks.law, source_of_blocks=talks.drawn)


def _replay(read: Any) -> Any:
    from tileq_engine.replayed_requests import ReplayedRequests

    return None if read.blocks is None else ReplayedRequests.of(read)


def _from_classes(classes: Sequence[str | RequestClass]) -> Traffic:
    from tileq_theory.request_class import parse_class
    from tileq_theory.workload import Workload

    parsed = [parse_class(item) if isinstance(item, str) else item for item in classes]
    workload = Workload(tuple(parsed))
    label = " + ".join(item.name for item in parsed)
    return Traffic(workload, label if len(label) <= 40 else f"{len(parsed)} classes", "classes as given")


def _named(workload: str | Workload) -> Traffic:
    if isinstance(workload, str) and workload.split(":")[0].strip() == CONVERSATIONS:
        return _from_conversations(workload.partition(":")[2])
    if isinstance(workload, str):
        from tileq_theory.workloads import named_workload

        found = named_workload(workload)
        return Traffic(found, f"{found.name} mix", f"named workload {found.name}: {found.provenance.source}")
    return Traffic(workload, workload.name or "given workload", workload.provenance.source or "workload as given")
