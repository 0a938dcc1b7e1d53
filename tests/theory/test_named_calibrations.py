"""Ready-made calibrations: each loads, says where it came from, and how far it may be trusted."""

from __future__ import annotations

import pytest

from tileq_theory.calibrations import calibration_names, named_calibration
from tileq_theory.capacity import Limits, capacity
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError
from tileq_theory.hardware import gpu_names

NAMES = calibration_names()


def test_the_required_devices_and_models_are_there() -> None:
    assert {
        "rtx-6000-ada/mistral-7b",
        "rtx-4090/llama-3.1-8b",
        "a100-sxm-80gb/qwen3-4b",
        "a100-sxm-80gb/codellama-34b-instruct",
        "a100-sxm-80gb/yi-34b-tp2",
    } <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_complete(name: str) -> None:
    c = named_calibration(name)
    assert c.name == name and c.gpu in gpu_names() and name.startswith(c.gpu + "/")
    assert c.time.provenance.kind == "fitted" and c.time.provenance.source
    assert (f"-tp{c.tp}" in name) == (c.tp > 1)
    assert c.time.error_band.low <= 1 <= c.time.error_band.high
    if c.tile_answer == "published":
        assert c.median_error is None
    else:
        assert c.median_error is not None and c.median_error < 0.15
        assert all(0 <= e.inside <= 1 and e.points > 0 for e in c.held_out)
    assert c.tile_answer in ("tile", "none", "undecided", "published")
    assert (c.time.tile_s > 0) == (c.tile_answer in ("tile", "published"))
    document = c.to_dict()
    assert document["name"] == name and document["iteration_time"] == c.time.to_dict()


@pytest.mark.parametrize("name", NAMES)
def test_each_gives_a_capacity(name: str) -> None:
    demand = Demand(1000, 200, 220_100, 500_500, 221_100, 201, 1000, 1200)
    rate = capacity(named_calibration(name).time, demand, Limits(max_batch_tokens=2048, max_num_seqs=128)).rate_per_s
    assert 0.05 < rate < 100


def test_published_constants_are_dais() -> None:
    t = named_calibration("a100-sxm-80gb/codellama-34b-instruct").time
    assert (t.launch_s, t.tile_s, t.tile_tokens) == (0.01128, 0.03547, 128)
    assert float(t(512)) == pytest.approx(0.15316)


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(InputError, match=r"did you mean rtx-4090/llama-3\.1-8b"):
        named_calibration("rtx-4090/llama-3-8b")
