"""The executor on a real (small) decoder: tokens under any schedule, sampling, faults. Skipped without torch."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, Requests
from tileq_engine.executor import RunFailedError, Sampling, replay, serve
from tileq_engine.executor.replaying import differences
from tileq_engine.registry import policy
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)
TIME = IterationTime(launch_s=0.01, token_s=1e-4)
SHAPE = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "vocab": 89}


@functools.cache
def backend() -> Any:
    from tileq_engine.decoder import DecoderConfig
    from tileq_engine.executor import make_backend

    return make_backend(DecoderConfig.small(**SHAPE), kv_tokens=14 * 16, seed=3)


def asked(n: int = 8, seed: int = 1) -> Requests:
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(0.03, n).cumsum(),
        prompt_tokens=g.integers(1, 60, n),
        output_tokens=g.integers(1, 30, n),
        tbt_limit_s=0.2,
        priority=g.integers(0, 2, n),
    )


@functools.cache
def alone(seed: int, temperature: float) -> tuple[Any, ...]:
    """Each request by itself, whole prompt at once: what its tokens are."""
    served = serve(
        asked(seed=seed),
        policy("static"),
        backend(),
        EngineConfig(max_num_seqs=1),
        clock=TIME,
        live=False,
        sampling=rules(temperature),
    )
    return served.outputs


def rules(temperature: float) -> list[Sampling]:
    return [Sampling(temperature=temperature, top_p=0.9, seed=i, ignore_eos=True) for i in range(8)]


SCHEDULES = st.sampled_from(
    [
        ("sarathi", {"order": "spf"}),
        ("vllm_v0", {}),
        ("vllm_v1", {}),
        ("vllm_v1", {"order": "priority"}),
        ("orca", {"chunks": True}),
        ("slai", {}),
        ("rad", {"b_col": 4, "b_lcm": 16}),
        ("rad_general", {"levels": [(24, 16, 8, 0.6), (8, 0, 8, 0.4)]}),
        ("wait", {"thresholds": (2,)}),
        ("svf", {}),
    ]
)


@settings(max_examples=15)
@given(
    schedule=SCHEDULES,
    budget=st.integers(8, 100),
    residents=st.integers(1, 8),
    blocks=st.integers(6, 14),
    preemption=st.sampled_from(["recompute", "swap"]),
    seed=st.integers(1, 3),
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
)
def test_tokens_do_not_depend_on_the_schedule(
    schedule: tuple[str, dict[str, Any]],
    budget: int,
    residents: int,
    blocks: int,
    preemption: Any,
    seed: int,
    temperature: float,
) -> None:
    """Policy, batch, chunk size, preemption by recompute and by swap, block layout: the tokens are the same."""
    name, params = schedule
    config = EngineConfig(
        token_budget=max(budget, residents),
        max_num_seqs=residents,
        kv_tokens=16 * blocks,
        preemption=preemption,
        oversize="reject",
    )
    served = serve(
        asked(seed=seed),
        policy(name, **params),
        backend(),
        config,
        clock=TIME,
        live=False,
        check=True,
        sampling=rules(temperature),
    )
    done = served.raw.status == 3
    assert served.raw.stop_reason in ("finished", "stalled")
    for i in np.flatnonzero(done).tolist():
        assert np.array_equal(served.outputs[i], alone(seed, temperature)[i]), i
    if served.raw.stop_reason == "finished":
        assert differences(served, replay(served)) == []
        assert served.raw.counters["finished"] + served.raw.counters["rejected"] == len(served.raw.status)


def test_arrivals_come_in_real_time() -> None:
    """On the wall clock nobody is admitted before it came, idle time is waited for, and the replay is exact."""
    import time

    requests = Requests.from_arrays(arrival_s=[0.0, 0.25], prompt_tokens=[5, 9], output_tokens=[2, 3])
    begun = time.perf_counter()
    served = serve(requests, policy("sarathi"), backend(), EngineConfig(max_num_seqs=4), clock="wall", live=False)
    assert time.perf_counter() - begun >= 0.25
    assert served.raw.admit_ps[1] == requests.arrival_ps[1]
    assert served.raw.end_ps >= requests.arrival_ps[1]
    assert differences(served, replay(served)) == []


def test_where_the_time_goes_is_told() -> None:
    served = serve(asked(), policy("sarathi"), backend(), EngineConfig(max_num_seqs=4), clock="cpu", live=False)
    shares = served.log.shares()
    assert (
        0 < shares["compute"] < 1
        and abs(sum(shares[k] for k in ("decide", "launch", "compute", "sample", "other")) - 1) < 1e-9
    )
    assert (served.log["compute_ns"] > 0).all()
    assert served.run().to_dict("none")["ttft_s"]["p50"] > 0


def test_a_logit_that_is_not_finite_is_one_clear_error(tmp_path: Path) -> None:
    """Which request and which layers; what ran before is kept, the cache holds its invariants."""
    import torch

    from tileq_engine.decoder import DecoderConfig
    from tileq_engine.executor import make_backend
    from tileq_engine.executor.session import Session

    broken = make_backend(DecoderConfig.small(**SHAPE), kv_tokens=14 * 16, seed=3)
    requests = asked()
    good = serve(requests, policy("sarathi"), broken, EngineConfig(max_num_seqs=4), clock=TIME, live=False)

    def spoil(session: Session) -> bool:
        if len(session.log) == 12:
            broken.decoder.weights.layers[1].mlp_norm[0] = torch.inf  # matrices may be packed: copies
        return False

    journal = tmp_path / "run.jsonl"
    with pytest.raises(RunFailedError, match=r"logits of request \d+ are not finite.*layer 1.*12 iterations") as raised:
        serve(
            requests,
            policy("sarathi"),
            broken,
            EngineConfig(max_num_seqs=4),
            clock=TIME,
            live=False,
            until=spoil,
            journal=journal,
            check=True,
        )
    before = raised.value.served.log
    assert np.array_equal(before["decision"], good.log["decision"][:12])
    assert len(journal.read_text().splitlines()) == 13


def test_start_up_faults_are_one_clear_line(tmp_path: Path) -> None:
    from tileq_engine.decoder import DecoderConfig
    from tileq_engine.executor import make_backend

    with pytest.raises(InputError, match=r"blocks would fit"):
        make_backend(DecoderConfig.small(**SHAPE), kv_tokens=10**13)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}))
    with pytest.raises(InputError, match=r"MambaForCausalLM.*LlamaForCausalLM"):
        make_backend(tmp_path)
    with pytest.raises(InputError, match="device 'tpu' is not there"):
        make_backend(device="tpu")
    with pytest.raises(InputError, match="dtype is 'int3'"):
        make_backend(dtype="int3")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    from tileq_engine.executor import make_backend

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 89,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    index = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"model-00001-of-00002\.safetensors"):
        make_backend(tmp_path)
