"""The application: its commands, its help, its version."""

from __future__ import annotations

__all__ = ["app"]

from cyclopts import App

from tileq import __version__
from tileq.cli.catalog import catalog
from tileq.cli.plan import plan
from tileq.cli.region import region

app = App(
    name="tileq",
    help="From a GPU, a model and a request trace to the throughput-optimal tile, its capacity and its proof.",
    help_epilogue="Example: `tileq plan --gpu h100-sxm --model llama-3.1-8b --workload chat --tbt 0.05`",
    version=f"tileq {__version__}",
    help_format="markdown",
)
app.command(plan)
app.command(region)
app.command(catalog)
