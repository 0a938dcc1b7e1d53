"""Named settings that sources and engines choose differently; never a silent choice.

*Token convention* (`theory.md` section 1). Engine (vLLM, SGLang): the last prefill chunk emits the first
output token, so a request of O output tokens takes O - 1 decode steps. Paper (RAD, Dai, Nie, WAIT; Sarathi's
code): O decode steps.

*Chunk counting*. Whole: a prompt of P tokens takes ceil(P/s) chunks of at most s tokens and holds
s, 2s, ..., P tokens after them. Fluid: P/s chunks, holding P(1 + P/s)/2 in all, the form printed by
Nie et al. (their E[g]), equal to whole when s divides P. Least: ceil(P/s) chunks with the remainder first, holding
P - (m - 1)s, ..., P - s, P: no other way of cutting a prompt into chunks of at most s tokens holds less, so a bound for
all policies takes it (a prompt of 249 tokens in chunks of 62 holds 869 whole and 625 least).

*Context of a decode step*. Step j = 1, 2, ... of a request with prompt P reads P + j KV tokens, its own included
(the same count as the memory it holds in that iteration).
"""

from __future__ import annotations

__all__ = ["ChunkCounting", "TokenConvention", "decode_steps"]

from typing import Literal

import numpy as np

from tileq_theory.errors import InputError

TokenConvention = Literal["engine", "paper"]
ChunkCounting = Literal["whole", "fluid", "least"]


def decode_steps(output_tokens: np.ndarray, convention: TokenConvention) -> np.ndarray:
    """Return the decode steps of requests of `output_tokens` tokens: O - 1 (engine, at least 0) or O (paper)."""
    output = np.asarray(output_tokens, dtype=float)
    if convention == "paper":
        return output
    if convention == "engine":
        return np.maximum(output - 1.0, 0.0)
    raise InputError(f"token convention is {convention!r}; expected 'engine' or 'paper'")
