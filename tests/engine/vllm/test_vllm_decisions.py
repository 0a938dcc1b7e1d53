"""Inside vLLM the rules decide as in the simulator: the same batches at the same picosecond, preemptions included."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="vLLM is not installed here: tools/vllm_environment.sh makes an environment with it")
from vllm_driving import by_simulator, by_vllm, draw  # noqa: E402
from vllm_harness import make_scheduler  # noqa: E402

from tileq_engine.config import EngineConfig  # noqa: E402
from tileq_engine.registry import policy  # noqa: E402
from tileq_engine.vllm import TileqScheduler  # noqa: E402

LIMITS = {True: 0.02, False: 0.08}
TIERS = {"paying": {"tbt_limit_s": 0.02, "paying": True}, "standard": {"tbt_limit_s": 0.08}}
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("sarathi", {}),
    ("sarathi", {"order": "spf"}),
    ("slai", {"order": "paying_spf"}),
    ("slai", {"order": "spf", "mean": "ewma", "theta": 2.0}),
    ("aging", {"base": "sarathi"}),
    ("priority", {"base": "sarathi"}),
    ("vllm_v1", {"admission": "sequence"}),
    ("rad_general", {"levels": [[64, 48, 16, 1.0], [32, 0, 32, 2.0]]}),
    ("rad", {"b_col": 8, "b_lcm": 64}),
]


@pytest.mark.parametrize(
    ("name", "params"), POLICIES, ids=lambda v: v if isinstance(v, str) else ",".join(map(str, v.values()))
)
@pytest.mark.parametrize("blocks", [2000, 30], ids=["ample", "tight"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_decisions_are_the_simulators(name: str, params: dict[str, Any], blocks: int, seed: int) -> None:
    drawn = draw(seed, 60)
    own = policy(name, **params)
    config = EngineConfig(token_budget=64, max_num_seqs=12, kv_tokens=16 * blocks)
    expected = by_simulator(own, config, drawn, LIMITS)
    settings = {"policy": name, "params": params, "token_budget": 64, "max_num_seqs": 12, "tiers": TIERS}
    scheduler = make_scheduler(
        TileqScheduler, tileq=settings, max_num_seqs=16, max_num_batched_tokens=128, blocks=blocks
    )
    found = by_vllm(scheduler, drawn)
    for step, (mine, theirs) in enumerate(zip(found, expected, strict=False)):
        assert mine[:2] == theirs[:2], f"iteration {step}"
        assert set(mine[2]) <= set(theirs[2]) | {n for _, _, p in expected[:step] for n in p}, f"iteration {step}"
    assert len(found) == len(expected)
    assert scheduler.report.stock_decisions == 0
