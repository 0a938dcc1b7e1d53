"""A real server on the loopback: tiers over HTTP, metrics, a client that goes away, a kill and a new start, a refit."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.campaign]
pytest.importorskip("vllm.v1", reason="no vLLM here: tools/vllm_environment.sh makes an environment with it")

from vllm_harness import model_with_weights  # noqa: E402

from tileq_engine.vllm.server import Server, ServerError  # noqa: E402

CPU = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
CPU |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "INFO"}
SERVED = "--skip-tokenizer-init --enforce-eager --dtype float32 --max-model-len 1024 --max-num-seqs 8"
KV_TOKENS = 6400
PLAN: dict[str, Any] = {
    "question": {"gpu": "cpu"},
    "engine": "vllm",
    "token_budget": 64,
    "max_num_seqs": 8,
    "rate_per_s": 20.0,
    "model": {"name": "tiny", "layers": 2, "hidden": 128, "heads": 4, "vocab": 512},
    "gpu": {"name": "cpu"},
    "tp": 1,
    "kv_tokens": KV_TOKENS,
    "iteration_time": {"launch_s": 0.002, "token_s": 1e-5, "tile_tokens": 1},
    "workload": {
        "demand": {"prefill_tokens": 60.0, "decode_tokens": 29.0, "attention_pairs": 1830.0, "kv_read_tokens": 2200.0}
    },
}


def start(folder: str, log: Path, tileq: dict[str, Any], budget: int = 64, **more: Any) -> Server:
    options = [*SERVED.split(), "--block-size", "32", "--num-gpu-blocks-override", str(KV_TOKENS // 32 + 1)]
    options += ["--max-num-batched-tokens", str(budget)]
    environment = {**CPU, **more.pop("environment", {})}
    scheduler = more.pop("scheduler", "SlaiScheduler")
    return Server(folder, scheduler, {"log_every_s": 1, **tileq}, options, log, environment=environment, **more)


def post(server: Server, **body: Any) -> http.client.HTTPResponse:
    plain = {"ignore_eos": True, "temperature": 0, "detokenize": False, "return_token_ids": True}
    asked = {"model": server.name, **plain, "prompt": list(range(3, 40)), **body}
    return server.post("/v1/completions", asked)


def tokens(server: Server, **body: Any) -> list[int]:
    answer = post(server, **body)
    text = answer.read().decode()
    assert answer.status == 200, text
    found: list[int] = json.loads(text)["choices"][0]["token_ids"]
    return found


def until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.2)
    return False


@pytest.fixture(scope="module")
def folder() -> str:
    return model_with_weights()


def test_tiers_faults_and_metrics_over_http(folder: str, tmp_path: Path) -> None:
    settings = {"plan": PLAN, "record": str(tmp_path / "record.jsonl")}
    server = start(folder, tmp_path / "server.log", settings)
    try:
        plain = tokens(server, max_tokens=8)
        assert len(plain) == 8
        paying = {"tileq_tier": "paying", "tileq_tbt_limit_s": 0.08}
        assert tokens(server, max_tokens=8, vllm_xargs=paying) == plain

        refused = post(server, max_tokens=8, vllm_xargs={"tileq_tier": "gold"})
        text = refused.read().decode()
        assert refused.status >= 500 or '"finish_reason":"error"' in text.replace(" ", ""), text

        hasty = {"tileq_tbt_limit_s": 0.0001}  # below the plan's shortest iteration: served all the same
        assert tokens(server, max_tokens=8, vllm_xargs=hasty) == plain

        leaving = post(server, max_tokens=900, stream=True)  # reads the head, then goes away
        leaving.read(10)
        leaving.close()
        running = "num_requests_running"
        assert until(lambda: server.metrics("vllm:")[running] == 0.0), "the seat of who went away is not free"
        tokens(server, max_tokens=300)  # long enough for the scheduler to write its report
        assert server.metrics("vllm:")["num_requests_waiting"] == 0.0

        assert until(lambda: server.metrics().get("decisions_total", 0) > 100)
        told = server.metrics()
        assert told["rejected_requests_total"] == told["unreachable_limits_total"] == 1.0
        assert told["planned_rate_per_s"] == 20.0 == told["headroom_per_s"] + told["arrival_rate_per_s"]
        assert told["token_budget"] == 64.0 and told["stock_decisions_total"] == 0.0
        log = server.text()
        assert "tileq: slai(" in log and "tier 'gold' is unknown" in log, log[-2000:]
        assert "a TBT limit of 0.0001 s cannot be met" in log
    finally:
        server.kill()

    with start(folder, tmp_path / "again.log", {"plan": PLAN}) as again:  # nothing is left of what was
        assert tokens(again, max_tokens=8) == plain
        assert again.metrics("vllm:")["num_requests_running"] == 0.0
    assert not again.alive


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"name": "llama-3.1-8b", "layers": 32}}, "the plan is for llama-3.1-8b with 32 layers"),
        ({"gpu": {"name": "h100-sxm"}}, "the plan is for a h100-sxm, this is"),
    ],
    ids=["model", "gpu"],
)
def test_a_plan_for_another_machine_stops_the_start_and_says_why(
    folder: str, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ServerError, match="before it was ready") as caught:
        start(folder, tmp_path / "server.log", {"plan": {**PLAN, **change}})
    assert says in str(caught.value) and "allow_other_machine" in str(caught.value)


def test_a_live_server_moves_budget_and_offset_within_their_limits(folder: str, tmp_path: Path) -> None:
    """Every iteration has a constant of 10 ms, so that a large budget pays; then each token takes 1.2 ms more.

    At the most of 96 tokens an iteration would then take 125 ms, above the tier's TBT limit of 60 ms.
    """
    slow = tmp_path / "slow.json"
    slow.write_text(json.dumps({"launch_s": 0.01, "token_s": 0.0}))
    online = {"enabled": True, "every_s": 2.0, "least_iterations": 40, "least_budget": 24, "most_budget": 96}
    online |= {"least_theta": 1.0, "most_theta": 6.0}
    tiers = {"standard": {"tbt_limit_s": 0.06, "paying": True}}
    settings = {"plan": PLAN, "online": online, "tiers": tiers}
    command = ["--scheduler-cls", "slowed.SlowedScheduler"]
    options = [*SERVED.split(), "--block-size", "32", "--num-gpu-blocks-override", str(KV_TOKENS // 32 + 1)]
    options += ["--max-num-batched-tokens", "128", *command]
    environment = {**CPU, "TILEQ_TEST_SLOWED": str(slow)}
    log = tmp_path / "server.log"
    with Server(folder, None, {"log_every_s": 1, **settings}, options, log, environment=environment) as server:
        done = threading.Event()

        def ask(k: int) -> None:
            while not done.is_set():
                tokens(server, max_tokens=30, prompt=list(range(3 + k, 63 + k)))

        clients = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
        for client in clients:
            client.start()
        try:
            assert until(lambda: server.metrics().get("token_budget") == 96.0, 60), server.metrics()
            before = server.metrics()
            slow.write_text(json.dumps({"launch_s": 0.01, "token_s": 0.0012}))
            assert until(lambda: server.metrics()["token_budget"] < 80.0, 120), server.metrics()
            after = server.metrics()
        finally:
            done.set()
            for client in clients:
                client.join(60)
        assert 24.0 <= after["token_budget"] < before["token_budget"] <= 96.0
        assert 1.0 <= after["theta"] <= before["theta"] <= 6.0
        assert after["refits_total"] > before["refits_total"] >= 1.0
        assert after["refitted_rate_per_s"] < before["refitted_rate_per_s"]
        assert after["planned_rate_per_s"] == 20.0
        assert after["headroom_per_s"] == pytest.approx(after["refitted_rate_per_s"] - after["arrival_rate_per_s"])
        assert after["decisions_total"] > before["decisions_total"] > 0.0
        assert "tileq: refitted from" in server.text()
