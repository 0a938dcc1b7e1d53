"""Facts of the device beside the model: the GeMM staircase, memory bandwidth, matmul peak, launch constant."""

from __future__ import annotations

__all__ = ["Fact", "gemm_sizes", "launch_call", "measure_facts", "staircase_call"]

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tileq_theory.hardware import Model

_LAUNCHES = 100


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of the device: what to run, and how its seconds become the figure."""

    name: str
    call: Callable[[Any], Any]
    value: Callable[[float], float]


def measure_facts(torch: Any, device: Any, dtype: Any, free: float) -> Iterator[Fact]:
    """Yield the calls whose times give bandwidth (bytes/s), matmul peak (FLOP/s) and launch constant (s a kernel).

    Two arrays are copied, of at most an eighth each of the `free` bytes.
    """
    cuda = device.type == "cuda"
    most = max(1 << 20, int(min(1 << 30 if cuda else 1 << 26, free / 8)))
    size = most // torch.empty(0, dtype=dtype).element_size()
    source = torch.ones(size, device=device, dtype=dtype)
    target = torch.empty_like(source)
    moved = 2.0 * size * source.element_size()
    yield Fact("bandwidth_bytes_per_s", lambda mark: target.copy_(source), lambda s: moved / s)
    side = 8192 if cuda else 1024
    left, right = torch.ones(side, side, device=device, dtype=dtype), torch.ones(side, side, device=device, dtype=dtype)
    yield Fact("matmul_flops_per_s", lambda mark: torch.mm(left, right), lambda s: 2.0 * side**3 / s)
    yield Fact("launch_s", launch_call(torch, device), lambda s: s / _LAUNCHES)


def launch_call(torch: Any, device: Any) -> Callable[[Any], None]:
    """Return a call of many kernels that do next to nothing: its time is that of launching them."""
    one = torch.zeros(1, device=device)

    def call(mark: Any) -> None:
        for _ in range(_LAUNCHES):
            one.add_(1.0)

    return call


def gemm_sizes(most_tokens: int) -> list[int]:
    """Return token counts for the staircase, coarse first: powers of two, then the places between and just above them.

    A step shows between a multiple of the tile and one token more, so both sides of each power are there.

    Examples
    --------
    >>> gemm_sizes(8)
    [1, 2, 4, 8, 3, 6, 5, 7]
    """
    powers = [1 << i for i in range(most_tokens.bit_length()) if 1 << i <= most_tokens]
    between = [p + p // 2 for p in powers if p > 1 and p + p // 2 <= most_tokens]
    above = [p + 1 for p in powers if p > 2 and p + 1 <= most_tokens]
    eighths = [p * k // 8 for p in powers if p >= 4 for k in (5, 7) if p * k // 8 <= most_tokens]
    return list(dict.fromkeys([*powers, *between, *above, *eighths]))


def staircase_call(
    torch: Any, model: Model, device: Any, dtype: Any, most_tokens: int
) -> Callable[[int], Callable[[Any], Any]]:
    """Return what gives, for n tokens, a call of the largest product, (n x hidden) times (hidden x 2 intermediate)."""
    weight = torch.ones(2 * model.intermediate, model.hidden, device=device, dtype=dtype)
    tokens = torch.ones(most_tokens, model.hidden, device=device, dtype=dtype)
    return lambda n: lambda mark: torch.nn.functional.linear(tokens[:n], weight)
