"""The page's cells, for marimo: controls, and the answer that follows them. Served by `tileq explore`."""

from typing import Any

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Tileq explorer", css_file="page.css")


@app.cell
def _() -> Any:
    import marimo as mo

    from tileq.explorer import choices, view
    from tileq_theory.hardware import gpu_names, model_names

    memory = view.Memory()
    return choices, gpu_names, memory, mo, model_names, view


@app.cell
def _(choices: Any, gpu_names: Any, mo: Any, model_names: Any) -> Any:
    machine = mo.ui.dictionary(
        {
            "gpu": mo.ui.dropdown(gpu_names(), value="rtx-4090", label="GPU", searchable=True),
            "model": mo.ui.dropdown(model_names(), value="llama-3.1-8b", label="model", searchable=True),
            "tp": mo.ui.dropdown(["1", "2", "4", "8"], value="1", label="GPUs per copy"),
            "dtype": mo.ui.dropdown(["bf16", "fp16", "fp8", "int8", "w4a16"], value="bf16", label="weights"),
            "nodes": mo.ui.dropdown(["1", "2", "4", "8", "16"], value="1", label="replicas"),
            "memory": mo.ui.slider(**choices.slider([k / 50 for k in range(25, 50)], 0.9, "share of GPU memory")),
            "engine": mo.ui.dropdown(["vllm", "sglang", "sarathi"], value="vllm", label="flags for"),
            "tbt": mo.ui.switch(value=True, label="limit between tokens"),
            "tbt_ms": mo.ui.slider(**choices.slider(choices.LIMITS_MS, 30, "TBT, ms")),
            "ttft": mo.ui.switch(value=False, label="limit on the first token"),
            "ttft_ms": mo.ui.slider(**choices.slider(choices.LIMITS_MS, 500, "TTFT, ms")),
        }
    )
    mix = mo.ui.dropdown(list(choices.MIXES), value="chat + code", label="classes")
    return machine, mix


@app.cell
def _(choices: Any, mix: Any, mo: Any) -> Any:
    classes = choices.MIXES[mix.value]
    traffic = mo.ui.dictionary({name: mo.ui.slider(**said) for name, said in choices.traffic_sliders(classes).items()})
    return classes, traffic


@app.cell
def _(machine: Any, mix: Any, mo: Any, traffic: Any) -> Any:
    _of = machine.elements
    mo.sidebar(
        [
            mo.Html("<b class='tileq-part'>Machine</b>"),
            *(_of[name] for name in ("gpu", "model", "tp", "nodes", "dtype", "memory", "engine")),
            mo.Html("<b class='tileq-part'>Traffic</b>"),
            mix,
            *traffic.elements.values(),
            mo.Html("<b class='tileq-part'>Limits</b>"),
            *(_of[name] for name in ("tbt", "tbt_ms", "ttft", "ttft_ms")),
        ],
        width="24rem",
    )
    return


@app.cell
def _(mo: Any) -> Any:
    mo.Html(
        '<div class="tileq-head"><h1>Stable rates</h1>'
        "<p>Inside the region some policy keeps every queue bounded; outside, none does.</p></div>"
    )
    return


@app.cell
def _(choices: Any, classes: Any, machine: Any, memory: Any, mo: Any, traffic: Any, view: Any) -> Any:
    shown = mo.Html(view.show(choices.settings_of({**machine.value, **traffic.value}, classes), memory))
    shown  # noqa: B018 (a cell shows its last expression)
    return (shown,)


if __name__ == "__main__":
    app.run()
