"""Write README's printed plan and the pictures of the documents anew: `python docs/refresh.py`.

A test compares the printed plan with what the command prints, so it is never out of date.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = "tileq plan --gpu rtx-4090 --class chat=1024:256@4 --class code=4096:32@1 --tbt 0.03"
PICTURES = {
    "region.svg": "tileq region --gpu rtx-4090 --class chat=1024:256 --class code=4096:32 --tbt 0.03 --at 2,0.8",
    "plan.svg": SAMPLE,
}
BLOCK = re.compile(r"(<!-- printed by: docs/refresh.py -->\n```text\n).*?(\n```)", flags=re.DOTALL)


POLICIES = re.compile(r"(<!-- policies: docs/refresh.py -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def policies() -> str:
    """Return README's table of policies, from the catalogue."""
    import tileq as tq

    lines = ["| policy | what it is, and whose | capacity |", "|---|---|---|"]
    for row in tq.catalog("policies").to_dict()["rows"]:
        bound = f"`{row['bound']}`" if row["bound"] else ""
        lines.append(f"| `{row['name']}` | {row['summary']} | {bound} |")
    return "\n".join(lines) + "\n"


def printed(command: str) -> str:
    """Return what a command prints into a pipe of 80 columns, the part on trust left out."""
    from tileq.cli.run import run

    out = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(out):
            status = run(shlex.split(command)[1:])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    if status != 0:
        raise SystemExit(f"{command} ended with {status}")
    return out.getvalue().split("\nHow far to trust it")[0].rstrip()


def modes(path: Path) -> None:
    """Draw where mixing, taking turns and nodes apart win on eight A100."""
    import tileq as tq
    from tileq_engine.plots_style import save_figure
    from tileq_theory.capacity import Limits
    from tileq_theory.disaggregation import mode_map, plot_mode_map

    machine = tq.plan(gpu="a100-sxm-80gb", classes=["2048:256"]).setting

    def demand_of(ratio: float) -> tq.Demand:
        prompt = round(1024 * ratio / (1 + ratio))
        return tq.parse_class(f"{prompt}:{1024 - prompt}").lengths.demand(chunk_tokens=8192, counting="least")

    grid = mode_map(
        demand_of,
        machine.time,
        Limits(kv_tokens=machine.kv_tokens, nodes=8),
        bytes_per_token=machine.model.kv_bytes_per_token(),
        ratios=[0.25, 1, 4, 8, 16, 32, 64],
        links_bytes_per_s=[1e9, 2.5e9, 5e9, 12.5e9, 25e9, 50e9],
        tbt_s=[0.012, 0.014, 0.016, float("inf")],
    )
    save_figure(plot_mode_map(grid), path)


def main() -> None:
    """Rewrite the block of README.md and the pictures."""
    readme = ROOT / "README.md"
    text, count = BLOCK.subn(
        lambda found: f"{found[1]}$ {SAMPLE}\n{printed(SAMPLE)}{found[2]}", readme.read_text(encoding="utf-8")
    )
    if count != 1:
        raise SystemExit(f"README.md has {count} printed blocks; expected 1")
    text, count = POLICIES.subn(lambda found: f"{found[1]}{policies()}{found[2]}", text)
    if count != 1:
        raise SystemExit(f"README.md has {count} tables of policies; expected 1")
    readme.write_text(text, encoding="utf-8")
    folder = ROOT / "docs" / "pictures"
    folder.mkdir(exist_ok=True)
    for name, command in PICTURES.items():
        printed(f"{command} --plot {shlex.quote(str(folder / name))}")
    modes(folder / "modes.svg")
    sys.stdout.write(f"wrote {readme.name} and {', '.join(PICTURES)}\n")


if __name__ == "__main__":
    main()
