"""Fit the named workloads that ship with the library to the recorded traces, and write their tables.

    python tools/fit_workloads.py DATA_FOLDER [OUT_FOLDER]

DATA_FOLDER holds the public traces as they were published: `azure_llm_2023/AzureLLMInferenceTrace_{conv,code}.csv`,
`slai/sharegpt_8k_filtered_stats_llama2_tokenizer.csv`, `mooncake/conversation_trace.jsonl`. The tables are fitted
figures (15 bins of quantiles), not copies of rows. The same data give the same files, up to the last digit.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from tileq_theory.arrivals import TraceArrivals, fit_on_off
from tileq_theory.lengths import Pairs
from tileq_theory.workloads.fit_error import fit_error
from tileq_theory.workloads.table import JointTable, fit_joint_table

TABLES = Path(__file__).resolve().parents[1] / "theory" / "tileq_theory" / "workloads" / "tables"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Lengths of the selected requests, arrival times in seconds where there are any, and what to say of them."""

    pairs: Pairs
    times_s: np.ndarray | None
    kind: str
    facts: dict[str, str]


def azure(folder: Path, service: str, kind: str, title: str) -> Recorded:
    """Read one service of the Azure LLM inference trace 2023; every row is kept."""
    prompts, outputs, times = [], [], []
    with (folder / "azure_llm_2023" / f"AzureLLMInferenceTrace_{service}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            prompts.append(int(row["ContextTokens"]))
            outputs.append(int(row["GeneratedTokens"]))
            whole, _, fraction = row["TIMESTAMP"].partition(".")  # seven digits, one more than datetime reads
            since = datetime.fromisoformat(whole) - datetime(2023, 1, 1)
            times.append(since.total_seconds() + float(f"0.{fraction or 0}"))
    source = f"Azure/AzurePublicDataset b469a11, AzureLLMInferenceTrace_{service}.csv (2023-11-16, one hour)"
    facts = {"title": title, "source": source, "licence": "CC-BY-4.0", "selection": "every row of the trace"}
    return Recorded(Pairs(prompts, outputs), np.array(times), kind, facts)


def sharegpt(folder: Path) -> Recorded:
    """Read the OpenChat-ShareGPT4 lengths published with SLAI; every row is kept."""
    prompts, outputs = [], []
    path = folder / "slai" / "sharegpt_8k_filtered_stats_llama2_tokenizer.csv"
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, skipinitialspace=True):
            prompts.append(int(row["num_prefill_tokens"]))
            outputs.append(int(row["num_decode_tokens"]))
    facts = {
        "title": "ShareGPT conversations, OpenChat-ShareGPT4 lengths in Llama 2 tokens",
        "source": "agrimUT/SLAI 5098a7a, sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
        "licence": "Apache-2.0",
        "selection": "every row of the file; it has no arrival times",
    }
    return Recorded(Pairs(prompts, outputs), None, "", facts)


def summarisation(folder: Path) -> Recorded:
    """Select the requests of Mooncake's conversation trace that look like summaries: long prompt, short output."""
    with (folder / "mooncake" / "conversation_trace.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    prompts = np.array([row["input_length"] for row in rows])
    outputs = np.array([row["output_length"] for row in rows])
    times = np.array([row["timestamp"] for row in rows]) / 1000
    chosen = (prompts >= 4096) & (prompts <= 32768) & (outputs >= 16) & (outputs * 10 <= prompts)
    facts = {
        "title": "Long prompts with short outputs, a construction that stands in for summarisation",
        "source": "kvcache-ai/Mooncake 3b5a594, conversation_trace.jsonl",
        "licence": "Apache-2.0",
        "selection": (
            "a construction, not a recorded summarisation service: the requests of a conversation trace with "
            "4096 <= prompt <= 32768 and 16 <= output <= prompt/10; arrivals there are quantised to about 3 s, so only "
            "their rate is kept"
        ),
    }
    return Recorded(Pairs(prompts[chosen], outputs[chosen]), times[chosen], "poisson", facts)


WORKLOADS: dict[str, Callable[[Path], Recorded]] = {
    "chat": lambda folder: azure(folder, "conv", "gamma", "Azure conversation service, 2023"),
    "code": lambda folder: azure(folder, "code", "on-off", "Azure code completion service, 2023"),
    "sharegpt": sharegpt,
    "summarisation": summarisation,
}


def short(tokens: float) -> float | int:
    """Return a quantile as it is written: whole tokens, tenths below 100."""
    return round(float(tokens)) if tokens >= 99.95 else max(round(float(tokens), 1), 1.0)


def written(table: JointTable) -> JointTable:
    """Return the table with the rounding it has in its file."""
    return JointTable(
        table.shares,
        table.prompt_levels,
        table.output_levels,
        np.array([[short(t) for t in row] for row in table.prompts], dtype=float),
        np.array([[short(t) for t in row] for row in table.outputs], dtype=float),
    )


def arrival_lines(recorded: Recorded) -> list[str]:
    """Return the [arrivals] part: the rate, and CV and bursts where times are fine enough to have them."""
    if recorded.times_s is None:
        return []
    trace = TraceArrivals(recorded.times_s)
    lines = ["", "[arrivals]", f'kind = "{recorded.kind}"', f"rate_per_s = {trace.rate_per_s:.6g}"]
    if recorded.kind != "poisson":
        lines.append(f"cv = {trace.scv**0.5:.6g}")
    if recorded.kind == "on-off":
        bursts = fit_on_off(trace)
        # rate_on from the rounded times, so that the rate is the recorded one
        on, off = (float(f"{t:.6g}") for t in (bursts.mean_on_s, bursts.mean_off_s))
        lines += [
            f"rate_on_per_s = {trace.rate_per_s * (on + off) / on:.6g}",
            f"mean_on_s = {on:.6g}",
            f"mean_off_s = {off:.6g}",
        ]
    return lines


def toml_of(name: str, recorded: Recorded) -> str:
    """Return the file of one workload."""
    table = written(fit_joint_table(recorded.pairs.prompts, recorded.pairs.outputs))
    error = fit_error(table.law(), recorded.pairs)
    rows = recorded.pairs.prompts.size
    lines = [f"# The named workload {name!r}: fitted figures, written by tools/fit_workloads.py."]
    lines += [f"{key} = {json.dumps(text)}" for key, text in recorded.facts.items()]
    lines += [f"rows = {rows}", *arrival_lines(recorded), "", "# fitted/recorded - 1 with chunks of 512 tokens, engine"]
    lines += ["# convention, and Kolmogorov-Smirnov distances of the marginals", "[fit]", f"worst = {error.worst:.2e}"]
    lines += [f"{key} = {value:.2e}" for key, value in asdict(error).items()]
    lines += ["", "# quantiles in tokens; each bin holds the requests of a range of prompt lengths", "[table]"]
    lines += [f"prompt_levels = {table.prompt_levels.tolist()}", f"output_levels = {table.output_levels.tolist()}"]
    lines += ["bins = ["]
    for share, prompt, output in zip(table.shares, table.prompts, table.outputs, strict=True):
        p, o = ([short(t) for t in row] for row in (prompt, output))
        lines.append(f"  {{ requests = {round(share * rows)}, prompt = {p}, output = {o} }},")
    return "\n".join([*lines, "]", ""])


def main(arguments: list[str]) -> int:
    """Write every table."""
    if len(arguments) not in (1, 2):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    out = Path(arguments[1]) if len(arguments) == 2 else TABLES
    out.mkdir(parents=True, exist_ok=True)
    for name, read in WORKLOADS.items():
        (out / f"{name}.toml").write_text(toml_of(name, read(Path(arguments[0]))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
