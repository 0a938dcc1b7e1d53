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
_SHORT = {"turns": "turns_mean", "prompts": "system_prompts", "zipf": "system_zipf", "system": "system_tokens",
          "user": "user_tokens", "answer": "answer_tokens", "think": "think_s", "block": "block_tokens"}  # fmt: skip


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

    from tileq.caching import parse_conversations
    from tileq_engine.conversations import Conversations as EngineConversations
    from tileq_theory.lengths import Pairs
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

    talks = parse_conversations(given)
    prompts, share = talks.turn_prompts()
    answers = np.full(prompts.size, max(1, round(talks.answer_tokens)))
    turns = RequestClass("turns", Pairs(np.maximum(np.round(prompts), 1).astype(np.int64), answers, share))
    drawn = EngineConversations(
        turns_mean=talks.turns,
        system_prompts=talks.system_prompts,
        system_zipf=talks.zipf,
        system_tokens=max(1, int(talks.system_tokens)),
        user_tokens=max(1, round(talks.user_tokens)),
        answer_tokens=max(1, round(talks.answer_tokens)),
        think_s=talks.think_s,
        block_tokens=16 if talks.block_tokens == 1 else talks.block_tokens,
    )
    workload = Workload((turns,))
    return Traffic(workload, "conversations", "conversations as given", prefixes=talks, source_of_blocks=drawn)


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


def _conversations(text: str) -> Traffic:
    """Return the conversations of "conversations:turns=6:user=geometric(64)", with defaults where nothing is given."""
    from tileq_engine.conversations import Conversations
    from tileq_theory.errors import near_matches
    from tileq_theory.lengths.parse import parse_lengths, split_outside

    given: dict[str, Any] = {}
    for item in split_outside(text, ":")[1:]:
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in _SHORT:
            raise InputError(f"{text!r}: {key!r} is unknown; {near_matches('settings', key, _SHORT)}")
        if _SHORT[key] in given:
            raise InputError(f"{text!r} gives {key} twice; expected every setting once")
        try:
            given[_SHORT[key]] = (parse_lengths if key in ("user", "answer") else _whole_or_not)(value)
        except ValueError:
            raise InputError(f"{text!r}: {key} is {value!r}; expected a number") from None
    source = Conversations(**given)
    label = f"conversations of {source.turns_mean:g} turns"
    return Traffic(
        source.workload(), label, "synthetic conversations", prefixes=_law_of(source), source_of_blocks=source
    )


def _law_of(source: Any) -> Conversations:
    """Return the law of the conversations that `source` draws; of lengths it knows the means."""
    from tileq_theory.prefix_cache import Conversations

    lengths = (source.user_tokens, source.answer_tokens)
    user, answer = (float(given if isinstance(given, int | float) else given.mean()) for given in lengths)
    return Conversations(
        turns=source.turns_mean,
        system_tokens=source.system_tokens,
        user_tokens=user,
        answer_tokens=answer,
        think_s=source.think_s,
        system_prompts=source.system_prompts,
        zipf=source.system_zipf,
        block_tokens=source.block_tokens,
    )


def _whole_or_not(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _named(workload: str | Workload) -> Traffic:
    if isinstance(workload, str) and workload.split(":")[0].strip() == CONVERSATIONS:
        return _conversations(workload)
    if isinstance(workload, str):
        from tileq_theory.workloads import named_workload

        found = named_workload(workload)
        return Traffic(found, f"{found.name} mix", f"named workload {found.name}: {found.provenance.source}")
    return Traffic(workload, workload.name or "given workload", workload.provenance.source or "workload as given")
