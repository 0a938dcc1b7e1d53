"""Mixing, taking turns and nodes apart, measured: `python -m tools.pool_modes traces DATA` and `... cells`.

`traces`: every recorded trace on eight A100 under one objective, `tileq analyze modes` for each; a row a trace and kind
of arrivals, written as soon as it is there. What was searched is kept in `--keep FOLDER` and taken up again.

`cells`: cells of the map of modes on both sides of its boundaries, each mode run beyond its program's rate
(`tileq_engine.cluster.simulate_modes`): served over program, and whether the program's winner wins.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

TRACES = {  # file, whether its arrivals were recorded
    "Azure 2023 code": ("azure_llm_2023/AzureLLMInferenceTrace_code.csv", True),
    "Azure 2023 conversation": ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", True),
    "Mooncake conversation": ("mooncake/conversation_trace.jsonl", True),
    "OpenChat-ShareGPT4": ("slai/sharegpt_8k_filtered_stats_llama2_tokenizer.csv", False),
    "ShareGPT": ("nanoflow/sharegpt.csv", False),
}
GPU, NODES, LINK = "a100-sxm-80gb", 8, 25.0
MODES = ("mixed", "aggregated", "disaggregated")
TOTALS, RATIOS, LIMITS_S = (512, 1024, 4096), (1, 4, 16, 32), (0.012, 0.014, 0.016, 0.02, None)


def write(line: str) -> None:
    """Write one row at once, so that what is there is kept."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def traces(folder: Path, ttft_s: float, tbt_s: float, requests: int, keep: Path | None, only: Sequence[str]) -> None:
    """Print the table of traces."""
    from tileq import analysis

    write("| trace | arrivals | " + " | ".join(MODES) + " | programs: M, A, D | settings | s |")
    write("|---" * (6 + len(MODES) - 1) + "|")
    for name in only:
        file, recorded = TRACES[name]
        for poisson in (True, False) if recorded else (True,):
            began = time.perf_counter()
            kind = "Poisson" if poisson else "recorded"
            sys.stderr.write(f"{name}, {kind}\n")
            kept = None if keep is None else keep / f"{name} {kind} {ttft_s:g} {tbt_s:g}".replace(" ", "-")
            if kept is not None:
                kept.mkdir(parents=True, exist_ok=True)
            held = analysis.modes(trace=folder / file, gpu=GPU, nodes=NODES, link=LINK, slo_ttft=ttft_s, slo_tbt=tbt_s,
                                  poisson=poisson, requests=requests, folder=kept, progress=True).to_dict()  # fmt: skip
            found = [held["modes"][mode] for mode in MODES]
            rates = [f"{m['rate_per_s']:.3g} ({m['interval']['low']:.3g}-{m['interval']['high']:.3g})" for m in found]
            programs = ", ".join(f"{m['program_per_s']:.3g}" for m in found)
            settings = "; ".join(m["setting"] for m in found)
            write(f"| {' | '.join((name, kind, *rates, programs, settings))} | {time.perf_counter() - began:.0f} |")


def cells(replications: int, totals: Sequence[int], ratios: Sequence[int]) -> None:
    """Print the table of cells."""
    import tileq as tq
    from tileq_engine.cluster import simulate_modes
    from tileq_theory.capacity import Limits
    from tileq_theory.disaggregation import KvLink, servable
    from tileq_theory.workload import Workload

    setting = tq.plan(gpu=GPU, classes=["2048:256"]).setting
    link = KvLink(float(setting.model.kv_bytes_per_token()), node_bytes_per_s=LINK * 1e9)
    write("| request | TBT limit | program: M, A, D | lead | served/program: M, A, D | late iterations | winner |")
    write("|---|---|---|---|---|---|---|")
    for total in totals:
        for ratio in ratios:
            prompt = round(total * ratio / (1 + ratio))
            workload = Workload([tq.parse_class(f"{prompt}:{total - prompt}")])
            for tbt_s in LIMITS_S:
                if tbt_s is not None and not servable(setting.time, workload.demand(chunk_tokens=8192), tbt_s):
                    continue
                limits = Limits(kv_tokens=int(setting.kv_tokens), tbt_s=tbt_s, nodes=NODES)
                found = simulate_modes(workload, setting.time, limits, link=link, replications=replications)
                first, second = sorted((run.program_per_s for run in found.values()), reverse=True)[:2]
                told = max(found, key=lambda mode: found[mode].program_per_s)
                seen = max(found, key=lambda mode: found[mode].served.estimate)
                lead = first / second - 1
                agree = told if told == seen else f"{told} told, {seen} seen"
                write(
                    f"| {prompt}:{total - prompt} | {'none' if tbt_s is None else f'{1e3 * tbt_s:g} ms'} | "
                    + ", ".join(f"{found[mode].program_per_s:.4g}" for mode in MODES)
                    + f" | {lead:.1%} | "
                    + ", ".join(f"{found[m].ratio:.3f} ± {found[m].served.half_width / found[m].program_per_s:.3f}"
                                for m in MODES)
                    + " | " + ", ".join(f"{found[mode].late_share:.0%}" for mode in MODES) + f" | {agree} |"
                )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Read the arguments and print the table that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.pool_modes", description=__doc__)
    which = parser.add_subparsers(dest="which", required=True)
    of_traces = which.add_parser("traces")
    of_traces.add_argument("data", type=Path)
    of_traces.add_argument("--ttft", type=float, default=2.0)
    of_traces.add_argument("--tbt", type=float, default=0.1)
    of_traces.add_argument("--requests", type=int, default=3000)
    of_traces.add_argument("--keep", type=Path)
    of_traces.add_argument("--only", nargs="+", default=tuple(TRACES), choices=tuple(TRACES))
    of_cells = which.add_parser("cells")
    of_cells.add_argument("--replications", type=int, default=4)
    of_cells.add_argument("--totals", type=int, nargs="+", default=TOTALS)
    of_cells.add_argument("--ratios", type=int, nargs="+", default=RATIOS)
    asked = parser.parse_args(arguments)
    if asked.which == "cells":
        cells(asked.replications, asked.totals, asked.ratios)
    else:
        traces(asked.data, asked.ttft, asked.tbt, asked.requests, asked.keep, asked.only)


if __name__ == "__main__":
    main(sys.argv[1:])
