"""The page's cells, for marimo: controls, and the answer that follows them. Served by `tileq explore`."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Tileq explorer", css_file="page.css")


@app.cell
def _():
    import marimo as mo

    from tileq.explorer import choices, view
    from tileq_theory.hardware import gpu_names, model_names

    memory = view.Memory()
    return choices, gpu_names, memory, mo, model_names, view


@app.cell
def _(choices, gpu_names, mo, model_names):
    machine = mo.ui.dictionary(
        {
            "gpu": mo.ui.dropdown(gpu_names(), value="h100-sxm", label="GPU", searchable=True),
            "model": mo.ui.dropdown(model_names(), value="llama-3.1-8b", label="model", searchable=True),
            "tp": mo.ui.dropdown(["1", "2", "4", "8"], value="1", label="GPUs per copy"),
            "dtype": mo.ui.dropdown(["bf16", "fp16", "fp8", "int8", "w4a16"], value="bf16", label="weights"),
            "memory": mo.ui.slider(0.5, 0.98, 0.02, value=0.9, label="share of GPU memory", show_value=True),
            "engine": mo.ui.dropdown(["vllm", "sglang", "sarathi"], value="vllm", label="flags for"),
            "tbt": mo.ui.switch(value=True, label="limit between tokens (TBT)"),
            "tbt_ms": mo.ui.slider(steps=choices.LIMITS_MS, value=50, label="TBT, ms", show_value=True),
            "ttft": mo.ui.switch(value=False, label="limit on the first token (TTFT)"),
            "ttft_ms": mo.ui.slider(steps=choices.LIMITS_MS, value=500, label="TTFT, ms", show_value=True),
        }
    )
    mix = mo.ui.dropdown(list(choices.MIXES), value="chat + code", label="classes")
    return machine, mix


@app.cell
def _(choices, mix, mo):
    classes = choices.MIXES[mix.value]

    def _slider(steps, value, label):
        return mo.ui.slider(steps=choices.steps_with(steps, value), value=value, label=label, show_value=True)

    lengths = mo.ui.dictionary(
        {
            name: control
            for i, c in enumerate(classes)
            for name, control in (
                (f"prompt {i}", _slider(choices.LENGTHS, c.prompt_tokens, f"{c.name}: prompt, tokens")),
                (f"output {i}", _slider(choices.LENGTHS, c.output_tokens, f"{c.name}: output, tokens")),
                (f"rate {i}", _slider(choices.RATES, c.rate_per_s, f"{c.name}: requests/s")),
            )
        }
    )
    return classes, lengths


@app.cell
def _(lengths, machine, mix, mo):
    _of = machine.elements
    mo.sidebar(
        [
            mo.md("**Machine**"),
            *(_of[name] for name in ("gpu", "model", "tp", "dtype", "memory", "engine")),
            mo.md("**Traffic**"),
            mix,
            *lengths.elements.values(),
            mo.md("**Limits**"),
            *(_of[name] for name in ("tbt", "tbt_ms", "ttft", "ttft_ms")),
        ],
        width="24rem",
    )
    return


@app.cell
def _(mo):
    mo.md("# Stable rates\nInside the region some policy keeps every queue bounded; outside, none does.")
    return


@app.cell
def _(choices, classes, lengths, machine, memory, mo, view):
    shown = mo.Html(view.show(choices.settings_of({**machine.value, **lengths.value}, classes), memory))
    shown
    return (shown,)


if __name__ == "__main__":
    app.run()
