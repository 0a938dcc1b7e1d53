"""Every figure: axes with units, one style, text that a README's width leaves readable, series told apart in grey."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from tileq.cli.run import run
from tileq_theory.figure_style import STYLE

ROOT = Path(__file__).resolve().parents[2]
README_PX = 830  # the column in which a forge shows a README
SMALLEST_PX = 9.0
UNIT = re.compile(
    r"\((?:s|ms|us|%|tokens|requests|batches|requests/s|1/s|GB/s|order of arrival)\)|\[(?:s|requests/s|1/s)\]"
    r"|, (?:s|ms|GB/s|tokens|GB|requests per second)\b|%|\bper\b|^ms$|requests|tokens|KV blocks|services|slot"
)
# numbers without a unit, each a ratio or a count: what it is of stands in the label
BARE = re.compile(r"load|share|over memory|over lower bound| / |times \(|queue|waiting|^batch$|growth|response|k$")

COMMANDS = {
    "plan": "plan --gpu rtx-4090 --class 1024:256 --tbt 0.03",
    "region of two": "region --gpu rtx-4090 --class chat=1024:256 --class code=4096:32 --tbt 0.03 --at 2,0.8",
    "region of three": "region --class 1024:256 --class 4096:32 --class 100:1000 --max-num-seqs 64",
    **{
        f"simulate {what}": f"simulate --requests 80 --replications 1 --class 300:30 --load 0.9 --picture {what}"
        for what in ("queues", "batches", "kv", "gantt")
    },
    "simulate hits": "simulate --requests 80 --replications 1 --conversations turns=5:system=256:user=32:answer=64"
    " --load 0.5 --prefix-cache --picture hits",
    "simulate tenants": "simulate --requests 200 --replications 1 --class 300:30 --load 1.2 --policy vtc"
    " --picture tenants --tenant gold=3@0.5 --tenant free=1@0.3 --tenant batch=0.5@0.2",
    "nodes": "simulate --cluster NODES --requests 80 --replications 1 --class 300:30 --load 0.8 --picture nodes",
    "many nodes": "simulate --cluster MANY --requests 300 --replications 1 --class 300:30 --load 0.8 --picture nodes",
    "pools": "simulate --cluster POOLS --requests 80 --replications 1 --class 300:30 --load 0.9 --picture pools",
    "shares on a cluster": "simulate --cluster NODES --requests 80 --replications 1 --class chat=300:30"
    " --class code=900:20 --load 0.8 --picture tenants",
    "compare": "compare --policies sarathi,slai,vllm_v1,orca --requests 60 --replications 2 --rates 6,12 --slo-ttft 9",
    "fluid": "analyze fluid --class 512:64 --load 0.8",
    "disaggregate": "analyze disaggregate --nodes 2",
}
CLUSTERS = {
    "NODES": "[[node]]\nname = 'new'\ncount = 2\n"
    "[[node]]\nname = 'old'\ngpu = 'a100-sxm-80gb'\ncount = 2\nweight = 0.5\n",
    "MANY": "[[node]]\nname = 'gpu'\ncount = 24\n",
    "POOLS": "[link]\ngb_per_s = 2\n[[node]]\nname = 'pre'\nrole = 'prefill'\ncount = 2\n"
    "[[node]]\nname = 'dec'\nrole = 'decode'\n",
}
REPRODUCED = sorted(path.stem for path in (ROOT / "paper_repro" / "results").glob("*.json"))


@contextmanager
def written() -> Iterator[list[tuple[Figure, dict[str, Any]]]]:
    """Collect every figure that is written, with the settings in force when it was."""
    found: list[tuple[Figure, dict[str, Any]]] = []
    real = Figure.savefig

    def savefig(self: Figure, *arguments: Any, **settings: Any) -> None:
        found.append((self, dict(mpl.rcParams)))
        real(self, *arguments, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield found


def labels(figure: Figure) -> Iterator[str]:
    """Yield the label of every axis that carries numbers; names (of policies, phases) are their own label."""
    shared = {id(a) for axes in figure.axes for group in (axes.get_shared_x_axes(), axes.get_shared_y_axes())
              for a in group.get_siblings(axes) if a is not axes}  # fmt: skip
    for axes in figure.axes:
        if not axes.axison or axes.get_label() == "<colorbar>":
            continue
        for axis in (axes.xaxis, axes.yaxis, *([axes.zaxis] if hasattr(axes, "zaxis") else [])):
            ticks = [tick.get_text() for tick in axis.get_ticklabels()]
            numbers = any(re.search(r"\d", text) for text in ticks)
            if (
                not axis.get_visible()
                or not numbers
                or re.search(r"[A-Za-z]{3}", "".join(ticks).replace("mathdefault", ""))
            ):
                continue
            if axis.get_label_text() or id(axes) not in shared:
                yield axis.get_label_text()


def texts(figure: Figure) -> Iterator[Any]:
    for text in figure.findobj(mpl.text.Text):
        if text.get_visible() and text.get_text().strip():
            yield text


def alike(figure: Figure) -> list[tuple[str, str]]:
    """Return the pairs of named lines of one panel that a grey print would not tell apart."""
    found = []
    for axes in figure.axes:
        named = [line for line in axes.lines if not line.get_label().startswith("_")]
        for a, b in itertools.combinations(named, 2):
            looks = [
                (line._dash_pattern, line.get_marker(), line.get_linestyle() == "None", line.get_linewidth() // 1)
                for line in (a, b)
            ]
            greys = [float(np.dot(to_rgb(line.get_color()), (0.299, 0.587, 0.114))) for line in (a, b)]
            if looks[0] == looks[1] and abs(greys[0] - greys[1]) < 0.12 and a.get_label() != b.get_label():
                found.append((a.get_label(), b.get_label()))
    return found


def check(figure: Figure, settings: dict[str, Any], what: str) -> None:
    figure.canvas.draw()
    style = mpl.rc_params_from_file(STYLE, use_default_template=False)
    off = {key: settings[key] for key in style if key != "lines.markersize" and settings[key] != style[key]}
    assert not off, f"{what}: not the project's style: {sorted(off)}"
    told = list(labels(figure))
    assert told, what
    for label in told:
        assert UNIT.search(label) or BARE.search(label), f"{what}: axis {label!r} has no unit"
    px_per_pt = min(README_PX, 96 * figure.get_figwidth()) / (72 * figure.get_figwidth())
    for text in texts(figure):
        size = px_per_pt * text.get_fontsize()
        assert size >= SMALLEST_PX, f"{what}: {text.get_text()!r} is {size:.1f} px high in a README"
    assert not alike(figure), f"{what}: the same in grey: {alike(figure)}"
    page = figure.bbox
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())):
        box = legend.get_window_extent()
        assert page.x0 <= box.x0 and box.x1 <= page.x1, f"{what}: the legend is cut off at the page's edge"


@pytest.mark.parametrize("name", COMMANDS)
def test_figures_of_the_commands(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(COMMANDS[name])
    for word in set(words) & set(CLUSTERS):
        (tmp_path / "cluster.toml").write_text(CLUSTERS[word], encoding="utf-8")
        words[words.index(word)] = str(tmp_path / "cluster.toml")
    with written() as found:
        assert run([*words, "--plot", str(tmp_path / "figure.svg"), "--json"]) == 0
    assert len(found) == 1
    check(*found[0], name)


def test_figure_of_the_hits_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.toml").write_text('[[node]]\nname = "a"\ncount = 2\nprefix_cache = true\n')
    asked = f"simulate --cluster {tmp_path}/two.toml --workload conversations:turns=3 --requests 80 --replications 1"
    with written() as found:
        assert run([*asked.split(), "--plot", str(tmp_path / "figure.svg"), "--picture", "hits", "--json"]) == 0
    check(*found[0], "hits of a cluster")


@pytest.mark.parametrize("limits", [[0.012, np.inf], [0.011, 0.0115, 0.015, np.inf], [0.011, 0.0115, np.inf]])
def test_figure_of_the_map_of_modes(limits: list[float]) -> None:
    """Drawn outside the style, as a user does: the look is the figure's own."""
    from tileq_theory.disaggregation import ModeMap, plot_mode_map
    from tileq_theory.figure_style import in_style

    ratios, links = np.array([0.25, 1, 4, 8, 16, 32, 64]), np.array([1e9, 2.5e9, 5e9, 12.5e9, 25e9, 50e9])
    shape = (len(limits), links.size, ratios.size)
    rates = np.random.default_rng(5).uniform(1, 3, (3, *shape))
    grid = ModeMap(ratios, links, np.array(limits), 8, rates, rates.argmax(axis=0), np.ones(shape, dtype=int))
    figure = plot_mode_map(grid)
    with in_style():
        check(figure, dict(mpl.rcParams), "modes")
    assert len([axes for axes in figure.axes if axes.get_title(loc="left")]) == len(limits)


def test_figures_of_a_calibration_report() -> None:
    import tileq as tq
    from tileq_profiling.fit import fit
    from tileq_profiling.profile import Profile
    from tileq_profiling.report import html_report

    g = np.random.default_rng(3)
    tokens, kv = g.integers(1, 2000, 240), g.integers(0, 40_000, 240)
    time = tq.IterationTime(launch_s=0.004, token_s=2e-5, kv_token_s=1e-8)
    seconds = [time(tokens=int(n), kv_tokens=int(k)) for n, k in zip(tokens, kv, strict=True)]
    measured = Profile.of(tokens=tokens, kv_tokens=kv, seconds=np.array(seconds) * g.lognormal(0, 0.02, 240))
    with written() as found:
        html_report(fit(measured, bootstrap=20), measured)
    assert len(found) >= 3
    for place, (figure, settings) in enumerate(found):
        check(figure, settings, f"report {place}")


@pytest.mark.parametrize("name", REPRODUCED)
def test_figures_of_the_reproductions(name: str) -> None:
    """Drawn from the data of the last full run."""
    from paper_repro.framework.store import Store
    from paper_repro.registry import item
    from tileq.plots.figure import styled

    data = Store(ROOT / "paper_repro" / "results").read(name)
    assert data is not None
    with styled() as plt:
        check(item(name).plot(data, plt), dict(mpl.rcParams), name)
