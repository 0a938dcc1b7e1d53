"""The application: its commands, its help, its version."""

from __future__ import annotations

__all__ = ["app"]

from cyclopts import App

from tileq import __version__
from tileq.cli import (
    analyze,
    calibrate,
    catalog,
    compare,
    explore,
    plan,
    profile,
    region,
    reproduce,
    simulate,
    validate,
)

app = App(
    name="tileq",
    help="From a GPU, a model and a request trace to the throughput-optimal tile and its proof.",
    help_epilogue="Example: tileq plan    (a default GPU, model and mix)",
    version=f"tileq {__version__}",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # run() answers it, with a line
)
app.command(plan.plan, help_epilogue=plan.EXAMPLE)
app.command(region.region, help_epilogue=region.EXAMPLE)
app.command(explore.explore, help_epilogue=explore.EXAMPLE)
app.command(simulate.simulate, help_epilogue=simulate.EXAMPLE)
app.command(compare.compare, help_epilogue=compare.EXAMPLE)
app.command(analyze.analyze)
app.command(calibrate.calibrate, help_epilogue=calibrate.EXAMPLE)
app.command(profile.profile, help_epilogue=profile.EXAMPLE)
app.command(reproduce.reproduce, help_epilogue=reproduce.EXAMPLE)
app.command(validate.validate, help_epilogue=validate.EXAMPLE)
app.command(catalog.catalog, help_epilogue=catalog.EXAMPLE)
