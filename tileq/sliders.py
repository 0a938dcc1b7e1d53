"""Sliders over `tileq.exploring` for a notebook: GPU, model, lengths, limits and rates on one side, the region beside.

from tileq.sliders import sliders

sliders().view
"""

from __future__ import annotations

__all__ = ["Sliders", "sliders"]

import math
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import Any

from tileq.exploring import Explored, Settings, explore
from tileq.words import number
from tileq_theory.errors import InputError

_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_LIMITS_MS = (10, 15, 20, 25, 30, 40, 50, 75, 100, 200, math.inf)  # a slider cannot hold None
_WIDE = {"width": "26em"}


class Sliders:
    """Controls, and what they say.

    Parameters
    ----------
    settings
        Where the controls start. Classes have fixed lengths, as in "chat=1024:256".

    Attributes
    ----------
    view
        The widget to display.
    controls
        Name -> widget: gpu, model, tbt_ms, memory, and prompt, output and rate of each class as "chat prompt".
    answer, error
        The last answer, and the reason why there is none for what the controls say now ("" where there is).
    """

    def __init__(self, settings: Settings) -> None:
        self.start = settings
        self.first = self.answer = explore(settings)
        self.error = ""
        self.names = self.first.region.theory.names
        self.controls: dict[str, Any] = {}
        self._add_machine()
        for place in range(len(self.names)):
            self._add_class(place)
        widgets = _widgets()
        self.picture = widgets.Image(format="png")
        self.text = widgets.HTML()
        left = widgets.VBox(list(self.controls.values()), layout=widgets.Layout(min_width="28em"))
        self.view = widgets.HBox([left, widgets.VBox([self.picture, self.text])])
        for control in self.controls.values():
            control.observe(self.update, names="value")
        self.update()

    def settings(self) -> Settings:
        """Return what the controls say."""
        value = {name: control.value for name, control in self.controls.items()}
        return self.start.with_(
            gpu=value["gpu"],
            model=value["model"],
            tbt_s=None if value["tbt_ms"] == math.inf else value["tbt_ms"] / 1000,
            memory_utilisation=value["memory"],
            classes=tuple(f"{name}={value[f'{name} prompt']}:{value[f'{name} output']}" for name in self.names),
            rates=tuple(value[f"{name} rate"] for name in self.names),
        )

    def update(self, change: Any = None) -> None:
        """Answer what the controls say and show it; what cannot be answered is said in its place."""
        try:
            self.answer, self.error = explore(self.settings()), ""
        except InputError as error:
            self.error = str(error)
            self.text.value = f"<p><b>No answer.</b> {escape(self.error)}</p>"
            return
        self.picture.value = _png(self.answer.figure(self.first))
        self.text.value = _table(self.answer)

    def _add_machine(self) -> None:
        from tileq_theory.hardware import gpu_names, model_names

        start = self.start
        own = math.inf if start.tbt_s is None else 1000 * start.tbt_s
        limits = [("no limit" if ms == math.inf else f"{number(ms)} ms", ms) for ms in sorted({*_LIMITS_MS, own})]
        self._choose("gpu", [(name, name) for name in gpu_names()], start.gpu, "GPU")
        self._choose("model", [(name, name) for name in model_names()], start.model, "model")
        self._slide("tbt_ms", limits, own, "TBT limit")
        layout = _widgets().Layout(**_WIDE)
        self.controls["memory"] = _widgets().FloatSlider(
            start.memory_utilisation, min=0.2, max=1.0, step=0.01, description="memory share", **_look(layout)
        )

    def _add_class(self, place: int) -> None:
        from tileq_theory.request_class import parse_class

        widgets, name = _widgets(), self.names[place]
        lengths = parse_class(self.start.classes[place]).lengths
        for what, law in (("prompt", lengths.prompt_law), ("output", lengths.output_law)):
            mean = round(law.mean())
            if not law.variance() == 0:
                raise InputError(f"class {name} has lengths {lengths.describe()}; sliders need fixed ones, as 1024:256")
            steps = [(f"{number(n)} tokens", n) for n in sorted({*_LENGTHS, mean})]
            self._slide(f"{name} {what}", steps, mean, f"{name} {what}")
        top = 2 * float(self.first.region.theory.vertices[:, place].max())
        self.controls[f"{name} rate"] = widgets.FloatSlider(
            self.first.rates[place],
            min=0.0,
            max=float(f"{top:.2g}"),
            step=float(f"{top / 200:.1g}"),
            description=f"{name} rate (1/s)",
            **_look(widgets.Layout(**_WIDE)),
        )

    def _choose(self, name: str, options: list[tuple[str, Any]], value: Any, label: str) -> None:
        widgets = _widgets()
        self.controls[name] = widgets.Dropdown(
            options=options, value=value, description=label, layout=widgets.Layout(**_WIDE), style=_LABELS
        )

    def _slide(self, name: str, options: Sequence[tuple[str, Any]], value: Any, label: str) -> None:
        self.controls[name] = _widgets().SelectionSlider(
            options=options, value=value, description=label, **_look(_widgets().Layout(**_WIDE))
        )


_LABELS = {"description_width": "10em"}


def _look(layout: Any) -> dict[str, Any]:
    # the answer follows when the handle is let go: an answer takes longer than a pixel of movement
    return {"continuous_update": False, "layout": layout, "style": _LABELS}


def _widgets() -> Any:
    try:
        import ipywidgets
    except ImportError:
        raise InputError(
            "ipywidgets is not installed; expected the notebooks extra: pip install 'tileq[notebooks]'"
        ) from None
    return ipywidgets


def _png(figure: Any) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def _table(answer: Explored) -> str:
    rows = "".join(f"<tr><td>{escape(name)}&emsp;</td><td>{escape(value)}</td></tr>" for name, value in answer.facts())
    return f"<table>{rows}</table>"


def sliders(settings: Settings | None = None) -> Sliders:
    """Return sliders over the stability region of two or three classes.

    Raises
    ------
    InputError
        Settings that have no answer to start from, lengths that are not fixed, or no ipywidgets.
    """
    return Sliders(Settings(rates=(6.0, 2.0)) if settings is None else settings)
