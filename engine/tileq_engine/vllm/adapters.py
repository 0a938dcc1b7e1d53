"""Which of those who are to be let in have an adapter (LoRA) that fits beside those of the running requests."""

from __future__ import annotations

__all__ = ["with_adapters"]

from collections.abc import Iterable
from typing import Any


def with_adapters(let_in: Iterable[Any], running: Iterable[Any], most: int) -> list[Any]:
    """Return those of the requests `let_in` with whom no more than `most` adapters run, in their order.

    vLLM counts the adapters of those that run in this iteration, since by its own rules these are all running ones.
    Where the rules put somebody off, more than there is room for could come to run together, which stops the engine:
    so all of the running ones count.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> a, b, c = (SimpleNamespace(lora_request=k and SimpleNamespace(lora_int_id=k)) for k in (1, 2, None))
    >>> with_adapters([b, c], [a], 1) == [c]
    True
    """
    used = {_adapter(request) for request in running} - {0}
    kept = []
    for request in let_in:
        own = _adapter(request)
        if not own or own in used or len(used) < most:
            used |= {own} - {0}
            kept.append(request)
    return kept


def _adapter(request: Any) -> int:
    """Return the number of a request's adapter, 0 without."""
    return int(request.lora_request.lora_int_id) if request.lora_request else 0
