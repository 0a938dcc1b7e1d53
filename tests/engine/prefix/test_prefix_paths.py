"""Blocks as paths of one tree: two requests share a node exactly when they share everything up to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefix_peers import prefixes

from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError

PATHS = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=12)


@given(PATHS)
def test_nodes_are_prefixes(lists: list[list[int]]) -> None:
    paths = BlockPaths.from_lists(lists, 16)
    named: dict[int, tuple[object, ...]] = {}
    for i, own in enumerate(lists):
        assert len(paths.path(i)) == len(own)
        for node, prefix in zip(paths.path(i).tolist(), prefixes(own), strict=True):
            assert named.setdefault(node, prefix) == prefix
    assert len(set(named.values())) == len(named) == len(paths.parent)
    for node, prefix in named.items():
        parent = int(paths.parent[node])
        assert named[parent] == prefix[:-1] if len(prefix) > 1 else parent == -1


@given(PATHS, st.data())
def test_a_selection_keeps_its_paths(lists: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=6))
    paths = BlockPaths.from_lists(lists, 16)
    few = paths.take(np.array(rows, dtype=np.int64))
    assert [few.path(k).tolist() for k in range(len(few))] == [paths.path(i).tolist() for i in rows]


def test_hashes_may_be_anything_and_chained_or_not() -> None:
    chained = BlockPaths.from_lists([["s", "s/a"], ["s", "s/b"], ["t", "t/a"]], 16)
    contents = BlockPaths.from_lists([["s", "a"], ["s", "b"], ["t", "a"]], 16)
    assert chained.nodes.tolist() == contents.nodes.tolist()
    assert len(chained.parent) == 5


def test_partly_filled_blocks_are_left_out() -> None:
    ids, edges = np.array([1, 2, 3, 1, 2]), np.array([0, 3, 5])
    full = BlockPaths.of(ids, edges, 512, full_blocks=np.array([2, 2]))
    assert full.lengths.tolist() == [2, 2] and full.path(0).tolist() == full.path(1).tolist()


@pytest.mark.parametrize("edges", [[0, 3], [1, 2], [0, 2, 1, 2], []])
def test_offsets_that_do_not_fit(edges: list[int]) -> None:
    with pytest.raises(InputError, match="block offsets"):
        BlockPaths.of(np.array([4, 5]), np.array(edges, dtype=np.int64), 16)


def test_requests_refuse_paths_that_are_not_theirs() -> None:
    lengths = {"prompt_tokens": [40, 40], "output_tokens": [8, 8]}
    with pytest.raises(InputError, match="paths of 1 requests; expected 2"):
        Requests.from_arrays(**lengths, blocks=BlockPaths.from_lists([[1]], 16))
    with pytest.raises(InputError, match="gives request 1 4 blocks of 16 tokens"):
        Requests.from_arrays(**lengths, blocks=BlockPaths.from_lists([[1], [1, 2, 3, 4]], 16))
    with pytest.raises(InputError, match="expected BlockPaths"):
        Requests.from_arrays(**lengths, blocks=[[1], [2]])
    asked = Requests.from_arrays(**lengths, blocks=BlockPaths.from_lists([[1], [1, 2, 3]], 16))
    assert asked.head(1).blocks is not None and len(asked.head(1).blocks) == 1
