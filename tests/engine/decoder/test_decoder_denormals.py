"""Flushing denormals is a mode of the thread: it holds within the decoder's passes and nowhere else."""

from __future__ import annotations

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the decoder needs the extra [torch]")


def flushing() -> bool:
    return sys.float_info.min * 0.5 == 0.0


def test_the_mode_ends_with_the_block() -> None:
    from tileq_engine.decoder.setup import denormals_flushed

    with denormals_flushed() as can:
        assert flushing() == can
    assert not flushing()
    with pytest.raises(ZeroDivisionError), denormals_flushed():
        _ = 1 / 0
    assert not flushing()


def test_a_mode_of_the_callers_own_stays() -> None:
    from tileq_engine.decoder.setup import denormals_flushed

    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        with denormals_flushed():
            pass
        assert flushing()
    finally:
        torch.set_flush_denormal(False)


def test_a_decoder_leaves_other_libraries_their_numbers() -> None:
    """scipy's k-d tree ends the process under flushed denormals: nothing of the decoder may leave them so."""
    from scipy.spatial import cKDTree

    from tileq_engine.decoder import Decoder, DecoderConfig, Member, flat_batch, random_weights, torch_setup

    torch_setup(1)
    config = DecoderConfig.small(layers=1, hidden=64)
    decoder = Decoder(config, random_weights(config, seed=1), blocks=4)
    decoder.forward(flat_batch([Member([5, 6, 7], 0, [1])]))
    assert not flushing()
    points = np.random.default_rng(0).integers(0, 9, (2000, 4)).astype(float)
    assert cKDTree(points).query(points)[0].max() == 0
