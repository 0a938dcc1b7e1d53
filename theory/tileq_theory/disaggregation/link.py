r"""The KV transfer between a prefill and a decode node.

A request of prompt P hands over P KV tokens of b bytes each, which takes latency + P b / B seconds on a link of B bytes
a second. A node sends or receives at most B, so a pool of n nodes moves n B/(P b) requests a second; a shared fabric
may limit the sum over all nodes as well.
"""

from __future__ import annotations

__all__ = ["KvLink"]

import math
from dataclasses import dataclass

from tileq_theory.errors import InputError, nonnegative, positive

_LONGEST_S = 1e6  # of one token's KV: beyond it programs cannot tell the link from none
_SLOWEST = 1e-290  # bytes a second: below it the time of a token is no finite number


@dataclass(frozen=True, slots=True)
class KvLink:
    """Links that carry KV.

    Parameters
    ----------
    bytes_per_token
        KV of one token over all layers, bytes, above 0 (`Model.kv_bytes_per_token`).
    node_bytes_per_s
        B, what one node can send, and what one can receive; inf for no limit.
    shared_bytes_per_s
        What all transfers together may use; inf for no limit.
    latency_s
        Fixed time of a transfer, 0 or more.

    Examples
    --------
    >>> link = KvLink(bytes_per_token=131072, node_bytes_per_s=50e9)
    >>> round(link.transfer_s(8192), 4)
    0.0215
    """

    bytes_per_token: float
    node_bytes_per_s: float = math.inf
    shared_bytes_per_s: float = math.inf
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes_per_token", positive("bytes_per_token", self.bytes_per_token))
        object.__setattr__(self, "latency_s", nonnegative("latency_s", self.latency_s))
        for name in ("node_bytes_per_s", "shared_bytes_per_s"):
            value = getattr(self, name)
            object.__setattr__(
                self, name, value if isinstance(value, float) and value == math.inf else positive(name, value)
            )
            token_s = self.bytes_per_token / getattr(self, name) if getattr(self, name) > _SLOWEST else math.inf
            if token_s > _LONGEST_S:
                raise InputError(
                    f"{name} is {value!r}: the KV of one token ({self.bytes_per_token:g} bytes) would take "
                    f"{token_s:.3g} s; expected {_LONGEST_S:g} s or less"
                )

    def transfer_s(self, prompt_tokens: float) -> float:
        """Return the time of one transfer of P tokens with the link to itself, seconds."""
        return (
            self.latency_s + nonnegative("prompt_tokens", prompt_tokens) * self.bytes_per_token / self.node_bytes_per_s
        )

    def node_s(self, prompt_tokens: float) -> float:
        """Return seconds of one node's link that a request takes, P b/B."""
        return prompt_tokens * self.bytes_per_token / self.node_bytes_per_s

    def shared_rate_per_s(self, prompt_tokens: float) -> float:
        """Return requests per second that the shared fabric carries (inf for no limit)."""
        load = prompt_tokens * self.bytes_per_token
        return math.inf if load == 0 else self.shared_bytes_per_s / load
