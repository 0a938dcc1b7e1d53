"""Pick next tokens: greedy, or drawn by a stream that belongs to the request and its position alone."""

from __future__ import annotations

__all__ = ["SamplingParams", "greedy", "greedy_host", "sample", "uniform"]

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped

from tileq_engine.compile_module import compiled_module
from tileq_engine.decoder import greedy_kernel
from tileq_theory.errors import InputError, finite, nonnegative


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one request are picked.

    Parameters
    ----------
    temperature
        0: the most probable token (the smallest id on ties). Above 0: drawn from softmax(logits / temperature).
    top_k
        Keep the k most probable tokens; 0: all.
    top_p
        Of those, keep the fewest whose probabilities reach `top_p`; 1: all.
    seed
        The request's own stream. Position p of the request always gets the same draw, whatever shares the batch.
    stop_token_ids
        A text ends with the first of these that is delivered.

    Examples
    --------
    >>> SamplingParams(stop_token_ids=(2,)).stops(2)
    True
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        nonnegative("temperature", self.temperature)
        if self.top_k != int(self.top_k) or self.top_k < 0:
            raise InputError(f"top_k is {self.top_k!r}; expected a whole number, 0 for all tokens")
        if not 0 < finite("top_p", self.top_p) <= 1:
            raise InputError(f"top_p is {self.top_p!r}; expected a number above 0 and at most 1")

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def restricted(self) -> bool:
        """Whether some tokens are left out before drawing."""
        return self.top_k > 0 or self.top_p < 1

    def stops(self, token: int) -> bool:
        """Return whether `token` ends the text."""
        return token in self.stop_token_ids


def uniform(seed: int, position: int) -> float:
    """Return the draw of `position` in the stream `seed`, uniform on [0, 1).

    Philox counts in place of a state: no draw depends on how many were taken before, so a request that is preempted
    and computed again gets the same tokens.

    Examples
    --------
    >>> uniform(1, 5) == uniform(1, 5), uniform(1, 5) == uniform(1, 6)
    (True, False)
    """
    bits = np.random.Philox(key=seed % 2**64, counter=position).random_raw(1)
    return float(bits[0] >> np.uint64(11)) * 2.0**-53


def sample(
    logits: Float[torch.Tensor, "out vocab"], params: Sequence[SamplingParams], positions: Sequence[int]
) -> Int[torch.Tensor, "out"]:
    """Return a token for each row, on the logits' device; -1 where a row is not finite (see `check_finite`).

    `positions` are those of the tokens to be picked, counted in the request's own text. Nothing here waits for the
    device: reading the result is the iteration's one synchronisation.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 3.0, 1.0], [5.0, float("nan"), 0.0]])
    >>> sample(x, [SamplingParams(), SamplingParams()], [7, 7]).tolist()
    [1, -1]
    """
    if not len(params) == len(positions) == len(logits):
        raise InputError(
            f"{len(logits)} rows of logits, {len(params)} sampling parameters and {len(positions)} positions; "
            "expected one of each per row"
        )
    tokens = greedy(logits)
    drawn = [i for i, p in enumerate(params) if not p.greedy]
    if not drawn:
        return tokens
    right = tokens >= 0
    for draw, kind in ((_draw, False), (_draw_kept, True)):
        chosen = [i for i in drawn if params[i].restricted is kind]
        if chosen:
            rows = _sent(chosen, torch.int64, logits.device)
            tokens[rows] = draw(logits[rows], [params[i] for i in chosen], [positions[i] for i in chosen])
    return torch.where(right, tokens, -1)


def greedy(logits: Float[torch.Tensor, "out vocab"]) -> Int[torch.Tensor, "out"]:
    """Return the most probable token of each row, the smallest id on ties; -1 where a row is not finite.

    On a CPU one compiled pass; elsewhere by torch, which does not wait for the device.

    Examples
    --------
    >>> greedy(torch.tensor([[0.0, 3.0, 3.0], [5.0, float("inf"), 0.0]])).tolist()
    [1, -1]
    """
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return torch.from_numpy(greedy_host(logits.contiguous())[0])
    # a row's sum is finite only if every logit is: one pass more instead of one over each logit's own test
    return torch.where(torch.isfinite(logits.sum(dim=-1)), logits.argmax(dim=-1), -1)


def greedy_host(logits: Float[torch.Tensor, "out vocab"]) -> tuple[Int[np.ndarray, "out"], int]:
    """Return `greedy` of float32 logits that lie in a row on the CPU, and in how many rows one is not finite."""
    bits = logits.numpy().view(np.int32)  # from here on without torch: its calls cost more than the work
    tokens = np.empty(len(bits), dtype=np.int64)
    return tokens, _compiled()(bits, tokens)


@functools.cache
def _compiled() -> Callable[..., int]:
    """Return `greedy_rows`, compiled."""
    return compiled_module(greedy_kernel, "greedy", "_nrt=False")["greedy_rows"]


def _draw(
    logits: Float[torch.Tensor, "row vocab"], params: Sequence[SamplingParams], positions: Sequence[int]
) -> Int[torch.Tensor, "row"]:
    """Invert the cumulated probabilities of all tokens."""
    share = torch.softmax(_warmed(logits, params), dim=-1)
    return _inverted(share, params, positions)[:, 0]


def _draw_kept(
    logits: Float[torch.Tensor, "row vocab"], params: Sequence[SamplingParams], positions: Sequence[int]
) -> Int[torch.Tensor, "row"]:
    """Leave out what top_k, then what top_p leaves out; invert the cumulated probabilities, most probable first."""
    vocab = logits.shape[-1]
    ranked, ids = torch.sort(_warmed(logits, params), dim=-1, descending=True, stable=True)
    kept = torch.arange(vocab, device=logits.device) < _column([p.top_k or vocab for p in params], logits)
    share = torch.softmax(ranked.masked_fill(~kept, -torch.inf), dim=-1)
    before = share.cumsum(dim=-1) - share
    share = share.masked_fill(before >= _column([p.top_p for p in params], logits), 0.0)
    return ids.gather(1, _inverted(share, params, positions))[:, 0]


def _column(values: Sequence[float], like: torch.Tensor) -> Float[torch.Tensor, "row 1"]:
    return _sent(values, torch.float64, like.device)[:, None]


def _sent(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Shaped[torch.Tensor, "row"]:
    """Return the values on the device; on CUDA by a copy that nobody waits for."""
    host = torch.tensor(values, dtype=dtype)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host


def _warmed(logits: Float[torch.Tensor, "row vocab"], params: Sequence[SamplingParams]) -> torch.Tensor:
    return logits.to(torch.float64) / _column([p.temperature for p in params], logits)


def _inverted(
    share: Float[torch.Tensor, "row vocab"], params: Sequence[SamplingParams], positions: Sequence[int]
) -> Int[torch.Tensor, "row 1"]:
    """Return the column at which the cumulated shares pass each row's draw; never one of share 0."""
    upto = share.cumsum(dim=-1)
    draw = _column([uniform(p.seed, at) for p, at in zip(params, positions, strict=True)], share) * upto[:, -1:]
    columns = torch.arange(share.shape[-1], device=share.device)
    last = torch.where(share > 0, columns, 0).amax(dim=-1, keepdim=True)  # rounding must not step beyond it
    return torch.minimum((upto <= draw).sum(dim=-1, keepdim=True), last)
