"""vLLM's queue of waiting requests, which during an iteration shows only those that the policy lets in."""

from __future__ import annotations

__all__ = ["PolicyQueue"]

from collections import deque
from collections.abc import Iterable

from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.request import Request


class PolicyQueue(FCFSRequestQueue):
    """First come, first served, until `admit` names who is let in, in which order; `everybody` ends that.

    vLLM admits from the head of its queue until something does not fit. While it forms a batch it therefore sees the
    chosen ones, and an empty queue behind them; lengths and iteration count everybody.
    """

    chosen: deque[Request] | None = None

    def admit(self, requests: Iterable[Request]) -> None:
        """Show these requests alone, in this order."""
        self.chosen = deque(requests)

    def everybody(self) -> None:
        """Show the whole queue again."""
        self.chosen = None

    def peek_request(self) -> Request:
        """Return who is next, without taking it out."""
        if self.chosen is None:
            return super().peek_request()
        return self.chosen[0]

    def pop_request(self) -> Request:
        """Take out who is next."""
        if self.chosen is None:
            return super().pop_request()
        request = self.chosen.popleft()
        self.remove(request)
        return request

    def __bool__(self) -> bool:
        return len(self) > 0 if self.chosen is None else bool(self.chosen)
