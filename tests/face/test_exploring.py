"""Sliders and explorer: an answer follows from settings alone and agrees with the region; the rest is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tileq as tq
from tileq.exploring import Explored, Settings, explore
from tileq.sliders import sliders

BASE = Settings(gpu="rtx-4090", rates=(2.0, 0.8), tbt_s=0.05)


@settings(max_examples=5)
@given(
    tbt_s=st.sampled_from([None, 0.03]),
    rates=st.tuples(st.floats(0.1, 6.0), st.floats(0.1, 3.0)),
)
def test_point_boundary_and_words_agree(tbt_s: float | None, rates: tuple[float, float]) -> None:
    answer = explore(BASE.with_(tbt_s=tbt_s, rates=rates))
    assert answer.load == pytest.approx(sum(rates) / answer.bound.rate_per_s, rel=1e-6)
    assert answer.inside == (answer.load <= 1 + 1e-12)
    assert answer.headroom == pytest.approx(1 / answer.load)
    at = dict(answer.facts())["operating point"]
    assert ("inside" in at) == answer.inside
    on_it = [f for f in answer.region.theory.facets if f.load(np.array(rates)) > answer.load * (1 - 1e-9)]
    assert any(f.binding == answer.binding for f in on_it)


def test_the_region_is_that_of_the_command() -> None:
    answer, region = explore(BASE), tq.region(list(BASE.classes), gpu="rtx-4090", tbt=0.05)
    assert np.allclose(answer.region.theory.vertices, region.theory.vertices, rtol=1e-9)


def test_moving_the_point_keeps_the_region() -> None:
    first, second = explore(BASE), explore(BASE.with_(rates=(1.0, 1.0)))
    assert np.array_equal(first.region.theory.vertices, second.region.theory.vertices)
    assert first.load != second.load
    assert explore(BASE.with_(rates=None)).load == pytest.approx(0.5, rel=0.01)


def test_axes_and_origin_are_answers() -> None:
    assert explore(BASE.with_(rates=(0.0, 0.0))).headroom is None
    axis = explore(BASE.with_(rates=(0.0, 1.0)))
    assert axis.headroom == pytest.approx(1 / axis.load)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory_utilisation": 0.3}, "does not fit"),
        ({"gpu": "rtx-40900"}, "not in the catalogue"),
        ({"tbt_s": 0.001}, "TBT limit"),
        ({"rates": (1.0,)}, "one a class"),
        ({"rates": (1.0, -1.0)}, "rate"),
        ({"classes": ()}, "no classes"),
        ({"classes": ("a=1:x", "b=1:1")}, "x"),
        ({"engine": "none"}, "engine"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_line(change: dict[str, object], said: str) -> None:
    with pytest.raises(tq.InputError, match=said) as caught:
        explore(BASE.with_(**change))
    assert "\n" not in str(caught.value)


def test_the_document_is_plain_and_the_figures_are_drawn(tmp_path: Path) -> None:
    import json

    answer = explore(BASE)
    assert json.loads(json.dumps(answer.to_dict()))["settings"]["gpu"] == "rtx-4090"
    for place, figure in enumerate((answer.figure(explore(BASE.with_(tbt_s=0.03))), answer.budget_figure())):
        figure.savefig(tmp_path / f"{place}.png")
        for axes in figure.axes:
            assert "requests/s" in axes.get_ylabel()
    labels = [text.get_text() for text in answer.figure(explore(BASE.with_(tbt_s=0.03))).legends[0].get_texts()]
    assert "before" in labels


# ---------------------------------------------------------------------- sliders, without a browser


def read(answer: Explored) -> tuple[float, str]:
    return answer.load, answer.binding


def test_a_slider_changes_the_answer_the_picture_and_the_text() -> None:
    panel = sliders(BASE)
    picture, text, before = panel.picture.value, panel.text.value, read(panel.answer)
    panel.controls["chat rate"].value = 3.0
    assert panel.answer.rates == (3.0, 0.8)
    assert panel.answer.load > before[0]
    assert panel.picture.value != picture and bytes(panel.picture.value).startswith(b"\x89PNG")
    assert panel.text.value != text
    for name, value in (("code prompt", 8192), ("tbt_ms", 30), ("memory", 0.8), ("gpu", "h100-sxm")):
        picture = panel.picture.value
        panel.controls[name].value = value
        assert panel.error == "" and panel.picture.value != picture, name
    asked = panel.settings()
    assert (asked.gpu, asked.tbt_s, asked.memory_utilisation) == ("h100-sxm", 0.03, 0.8)
    assert asked.classes == ("chat=1024:256", "code=8192:32")


def test_a_slider_that_has_no_answer_says_why_and_recovers() -> None:
    panel = sliders(BASE)
    panel.controls["memory"].value = 0.3
    assert "does not fit" in panel.error and "does not fit" in panel.text.value
    panel.controls["memory"].value = 0.9
    assert panel.error == "" and "inside" in panel.text.value


def test_sliders_start_where_they_are_told() -> None:
    panel = sliders(BASE.with_(classes=("a=100:7", "b=333:40"), tbt_s=0.037))
    assert panel.settings() == BASE.with_(classes=("a=100:7", "b=333:40"), tbt_s=0.037)
    with pytest.raises(tq.InputError, match="fixed"):
        sliders(BASE.with_(classes=("a=uniform(1,9):7", "b=333:40")))


def test_three_classes_have_sliders_too() -> None:
    panel = sliders(Settings(classes=("a=512:64", "b=4096:16", "c=64:512"), max_num_seqs=64))
    assert panel.answer.load == pytest.approx(0.5, rel=0.02)
    panel.controls["c output"].value = 1024
    assert panel.answer.load > 0.52
