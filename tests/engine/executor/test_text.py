"""Requests of text: encoded, served, decoded; stop texts; clear errors."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tileq_engine import EngineConfig
from tileq_engine.executor import TokenHashBackend, load_tokenizer, serve, text_requests
from tileq_engine.executor.token_hash import next_token
from tileq_engine.registry import policy
from tileq_theory.errors import InputError


class Letters:
    """A letter a token."""

    def encode(self, text: str) -> list[int]:
        return [ord(c) - 32 for c in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(t + 32) for t in tokens)


def test_text_goes_in_and_comes_out() -> None:
    asked = text_requests(["hello", "a"], Letters(), output_tokens=[6, 3])
    config = EngineConfig(max_num_seqs=2)
    served = serve(
        asked.requests, policy("sarathi"), TokenHashBackend(), config, clock="busy", prompts=asked.prompts,
        sampling=asked.sampling, live=False,
    )  # fmt: skip
    expected = []
    for text, limit in (("hello", 6), ("a", 3)):
        history = Letters().encode(text)
        for _ in range(limit):
            history.append(next_token(np.array(history), 97))
        expected.append(Letters().decode(history[len(text) :]))
    assert asked.texts(served) == expected
    stop = expected[0][1:3]
    cut = text_requests(["hello", "a"], Letters(), output_tokens=[6, 3], stop=[stop])
    again = serve(
        cut.requests, policy("sarathi"), TokenHashBackend(), config, clock="busy", prompts=cut.prompts,
        sampling=cut.sampling, live=False,
    )  # fmt: skip
    assert cut.texts(again)[0] == expected[0][:3]


def test_misuse(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text"):
        text_requests([], Letters())
    with pytest.raises(InputError, match=r"prompt 1 .* has no token"):
        text_requests(["a", ""], Letters())
    if importlib.util.find_spec("tokenizers") is None:
        pytest.skip("tokenizers is not installed")
    with pytest.raises(InputError, match="no such file"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="is no tokenizer"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_file_is_read(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"one": 0, "two": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    read = load_tokenizer(tmp_path)
    assert read.encode("two one three") == [1, 0, 2]
    assert read.decode([0, 1]) == "one two"
