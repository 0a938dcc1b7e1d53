"""`tileq validate`: a folder that cannot be gone on from, and limits of vLLM that make no sense. No vLLM is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tileq.validating_vllm import validate_vllm
from tileq.validation_kept import Kept
from tileq_theory.errors import InputError


@pytest.mark.parametrize("text", ['{"kind": "tileq val', "", "[1]", "3"], ids=["half", "empty", "list", "number"])
def test_a_folder_with_a_file_written_halfway_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    kept = Kept(tmp_path, {"seed": 0}, True)
    step = tmp_path / "profile.kept.json"
    step.write_text(text)
    with pytest.raises(InputError, match="--anew") as caught:
        kept.or_made("profile", dict)
    assert str(step) in str(caught.value) and "\n" not in str(caught.value)
    (tmp_path / "validation.json").write_text(text)
    with pytest.raises(InputError, match="--anew"):
        Kept(tmp_path, {"seed": 0}, True)
    assert Kept(tmp_path, {"seed": 0}, False).or_made("profile", lambda: {"made": 1}) == {"made": 1}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": -5}, "max_tokens is -5"),
        ({"kv_tokens": 0}, "kv_tokens is 0"),
        ({"kv_tokens": -10}, "kv_tokens is -10"),
        ({"kv_tokens": 33}, "kv_tokens is 33; the longest request has 120 tokens, which need 128"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"token_budget": 500, "max_tokens": 100}, "token_budget is 500; max_tokens is 100"),
        ({"seed": -1}, "seed is -1"),
        ({"device": "tpu"}, "device is 'tpu'; expected cpu, cuda or cuda:NUMBER"),
    ],
    ids=str,
)
def test_limits_that_make_no_sense_are_refused_before_vllm_is_asked_for(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        validate_vllm(classes=["100:20"], requests=60, max_num_seqs=8, **given)
