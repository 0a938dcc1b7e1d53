"""Plain data: what goes into a document comes out of its JSON, and nothing that is no JSON gets in."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq.plain import dumps, plain

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


@given(st.dictionaries(st.text(), DOCUMENTS, max_size=5))
def test_json_says_what_the_document_says(document: dict[str, object]) -> None:
    assert json.loads(dumps(document), parse_constant=pytest.fail) == plain(document)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.array([np.inf])])
def test_numbers_that_are_not_finite_are_never_tokens(value: object) -> None:
    text = dumps({"x": value})
    assert "NaN" not in text and "Infinity" not in text
    assert json.loads(text)["x"] in (None, [None])


def test_what_documents_are_made_of() -> None:
    @dataclass(frozen=True)
    class Part:
        tokens: int
        path: Path

    assert plain(Part(3, Path("a/b"))) == {"tokens": 3, "path": "a/b"}
    assert plain({"x": np.arange(3), "y": (np.int32(1), {2})}) == {"x": [0, 1, 2], "y": [1, [2]]}
    with pytest.raises(TypeError, match="object is not plain data"):
        plain(object())
