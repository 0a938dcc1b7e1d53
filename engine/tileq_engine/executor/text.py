"""Requests made of text: a tokenizer in, prompts and requests out, and the answers back as text."""

from __future__ import annotations

__all__ = ["TextRequests", "Tokenizer", "load_tokenizer", "text_requests"]

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from tileq_engine.executor.sampling import Sampling
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, no_such_file, positive_int


@runtime_checkable
class Tokenizer(Protocol):
    """What is asked of a tokenizer; those of `transformers` have it."""

    def encode(self, text: str) -> Sequence[int]:
        """Return the tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        ...


class _FromFile:
    """A tokenizer.json through the library `tokenizers`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return [int(t) for t in self._inner.encode(text).ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._inner.decode([int(t) for t in tokens]))


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json, or of the model folder that holds one.

    Raises
    ------
    InputError
        There is no such file, it cannot be read, or the library `tokenizers` is not installed.
    """
    where = Path(path)
    file = where / "tokenizer.json" if where.is_dir() else where
    if importlib.util.find_spec("tokenizers") is None:
        raise InputError(
            "a tokenizer.json needs the library tokenizers, which is not installed; pip install tokenizers"
        )
    if not file.is_file():
        raise no_such_file(file, "a tokenizer.json, or a folder that holds one")
    reader = importlib.import_module("tokenizers").Tokenizer
    try:
        return _FromFile(reader.from_file(str(file)))
    except Exception as error:  # the library raises its own bare Exception
        raise InputError(f"{file} is no tokenizer: {str(error).splitlines()[0]}") from None


@dataclass(frozen=True, slots=True)
class TextRequests:
    """Texts as requests: `serve(t.requests, ..., prompts=t.prompts, sampling=t.sampling)`, then `t.texts(served)`."""

    requests: Requests
    prompts: tuple[Int[np.ndarray, "_"], ...]
    sampling: tuple[Sampling, ...]
    tokenizer: Tokenizer

    def texts(self, served: Any) -> list[str]:
        """Return the generated text of each request, its stop text included where it ended with one."""
        return [self.tokenizer.decode(output.tolist()) for output in served.outputs]


def text_requests(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    *,
    output_tokens: int | Sequence[int] = 128,
    arrival_s: float | Sequence[float] = 0.0,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    **facts: Any,
) -> TextRequests:
    """Return the requests of `texts`.

    Parameters
    ----------
    tokenizer
        Anything with `encode` and `decode`.
    output_tokens
        Limit of each answer; it ends before it with the model's end of text, or a stop text.
    arrival_s
        When each comes, in order.
    sampling
        Of all of them; None: greedy.
    stop
        Texts that end an answer, by the tokens that they have on their own.
    facts
        Further columns of `Requests.from_arrays` (priority, tbt_limit_s, ...).

    Examples
    --------
    >>> class Letters:
    ...     def encode(self, text): return [ord(c) for c in text]
    ...     def decode(self, tokens): return "".join(map(chr, tokens))
    >>> t = text_requests(["ab", "c"], Letters(), output_tokens=3)
    >>> t.requests.prompt_tokens.tolist(), t.prompts[0].tolist()
    ([2, 1], [97, 98])
    """
    if not texts:
        raise InputError("no text was given; expected at least one prompt")
    prompts = [np.asarray(tokenizer.encode(text), dtype=np.int32) for text in texts]
    empty = next((i for i, p in enumerate(prompts) if p.size == 0), None)
    if empty is not None:
        raise InputError(f"prompt {empty} ({texts[empty]!r}) has no token; expected at least one")
    limits = [output_tokens] * len(texts) if isinstance(output_tokens, int) else list(output_tokens)
    rule = sampling or Sampling()
    ends = tuple(tuple(int(t) for t in tokenizer.encode(text)) for text in stop)
    rule = replace(rule, stop_sequences=(*rule.stop_sequences, *ends))
    asked = Requests.from_arrays(
        arrival_s=np.broadcast_to(np.asarray(arrival_s, dtype=float), (len(texts),)),
        prompt_tokens=[p.size for p in prompts],
        output_tokens=[positive_int("output_tokens", limit) for limit in limits],
        **facts,
    )
    rules = tuple(replace(rule, seed=rule.seed + i) for i in range(len(texts)))
    return TextRequests(asked, tuple(prompts), rules, tokenizer)
