"""Mixing, taking turns and nodes apart under one objective on the recorded traces: `python -m tools.pool_modes DATA`.

Eight nodes of each kind of cluster get the same requests. The rate is the largest (to 2 %) at which the 90 % quantile
of TTFT and the 99 % quantile of TBT stay within the objective, by bisection with the same random numbers at every rate;
beside it stands what the programs say of the same nodes without a quantile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRACES = {
    "Azure code": "azure_llm_2023/AzureLLMInferenceTrace_code.csv",
    "Azure conversation": "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    "ShareGPT": "slai/sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
    "Mooncake conversation": "mooncake/conversation_trace.jsonl",
}
NODES, REQUESTS, TTFT_S = 8, 1500, 1.0


def clusters(workload: Any, gpu: str, tbt_s: float) -> dict[str, Any]:
    """Return the three clusters of eight nodes, as files say them."""
    import tileq as tq

    plan = tq.plan(gpu=gpu, workload=workload, tbt=tbt_s, nodes=NODES, disaggregate=True, link=25)
    assert plan.split is not None
    split = plan.split.comparison.split
    node = {"gpu": gpu, "kv_tokens": plan.setting.kv_tokens}
    mixed = {**node, "name": "gpu", "count": NODES, "token_budget": plan.token_budget}
    apart = [
        {**node, "name": "pre", "role": "prefill", "count": split.prefill_nodes},
        {**node, "name": "dec", "role": "decode", "count": split.decode_nodes,
         "token_budget": max(plan.split.decode.token_budget, 256)},
    ]  # fmt: skip
    return {
        "mixed": {"node": [mixed]},
        "aggregated": {"node": [{**mixed, "policy": "vllm_v0", "token_budget": 8192, "max_num_seqs": 256}]},
        "disaggregated": {"node": apart, "link": {"gb_per_s": 25.0}},
    }


def rate_within(made: Any, workload: Any, tbt_s: float) -> float:
    """Return the largest rate within the objective, requests per second."""
    from tileq.simulating_cluster import simulate_cluster

    def within(rate: float) -> bool:
        found = simulate_cluster(
            made, rate=rate, requests=REQUESTS, replications=1, seed=1, workload=workload, progress=False
        ).to_dict()  # fmt: skip
        late = found["ttft_s"]["p90"] > TTFT_S or found["tbt_s"]["p99"] > tbt_s
        return not late and found["requests"]["rejected"] < 0.05 * REQUESTS

    return _largest(within)


def _largest(within: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    while within(high):
        low, high = high, 2 * high
    while high - low > 0.02 * high and high > 0.02:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def main(folder: Path) -> None:
    """Print the table."""
    import tileq as tq
    from tileq_profiling.readers import read_trace

    sys.stdout.write("| trace | GPU | TBT limit | mixed | aggregated | disaggregated | split | programs: M, A, D |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|---|\n")
    for name, file in TRACES.items():
        workload = read_trace(folder / file).to_workload(arrivals=False)
        for gpu, tbt_s in (("a100-sxm-80gb", 0.1), ("a100-sxm-80gb", 0.03)):
            plan = tq.plan(gpu=gpu, workload=workload, tbt=tbt_s, nodes=NODES, disaggregate=True, link=25)
            assert plan.split is not None
            found = plan.split.comparison
            rates = {mode: rate_within(made, workload, tbt_s) for mode, made in clusters(workload, gpu, tbt_s).items()}
            bounds = f"{found.mixed_per_s:.3g}, {found.aggregated_per_s:.3g}, {found.disaggregated_per_s:.3g}"
            row = (name, gpu, f"{1e3 * tbt_s:g} ms", *(f"{rate:.3g}" for rate in rates.values()),
                   f"{found.split.prefill_nodes} + {found.split.decode_nodes}", bounds)  # fmt: skip
            sys.stdout.write("| " + " | ".join(row) + " |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
