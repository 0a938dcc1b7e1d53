"""The explorer without a browser: its cells, what it shows, the page over HTTP, how the command ends, bad input."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tileq.cli.run import run
from tileq.explorer import choices, view
from tileq.exploring import Settings, explore

needs_marimo = pytest.mark.skipif(
    importlib.util.find_spec("marimo") is None, reason="marimo is not installed (pip install 'tileq[explore]')"
)
Capture = pytest.CaptureFixture[str]
SMALL = Settings(gpu="rtx-4090", classes=("chat=1024:256", "code=4096:32"), rates=(2.0, 0.8), tbt_s=0.03)


def shown(html: str, key: str) -> str:
    """Return the text of the element with that id."""
    found = re.search(rf'id="tileq-{key}"[^>]*>(.*?)</', html, flags=re.DOTALL)
    assert found is not None, key
    return found[1].replace("&#x27;", "'")


# ---------------------------------------------------------------------- what is shown


def test_the_page_shows_what_the_answer_says() -> None:
    html, answer = view.show(SMALL, view.Memory()), explore(SMALL)
    assert f'data-binding="{answer.binding}"' in html and f'data-load="{answer.load:.6g}"' in html
    assert shown(html, "budget") == str(answer.plan.token_budget)
    assert shown(html, "flags") == answer.plan.flags.command()
    for note in answer.warnings():
        assert note.split(":")[0] in html


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        SMALL.with_(rates=(0.0, 0.0), tbt_s=None),
        SMALL.with_(tp=2, nodes=4, memory_utilisation=0.8, dtype="fp8", ttft_s=0.5, engine="sglang"),
        Settings(classes=("a=64:64", "b=512:16", "c=16:512"), rates=(3.0, 2.0, 0.7), max_num_seqs=64),
    ],
    ids=["two classes", "nothing asked", "every option", "three classes"],
)
def test_the_commands_on_the_page_give_its_numbers(settings: Settings, capsys: Capture) -> None:
    answer = explore(settings)
    region, plan = view.commands(answer.settings)
    documents = []
    for command in (region, plan):
        assert run([*shlex.split(command)[1:], "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0]["at"]["utilisation"] == pytest.approx(answer.load, rel=1e-12)
    assert documents[1]["rate_per_s"] == pytest.approx(answer.plan.rate_per_s, rel=1e-9)
    assert documents[1]["engine_command"] == answer.plan.flags.command()
    assert documents[1]["token_budget"] == answer.plan.token_budget


def test_the_answer_before_is_outlined_once_something_moved() -> None:
    memory = view.Memory()
    first = view.show(SMALL, memory)
    assert view.show(SMALL, memory) == first, "the same settings once more change nothing"
    view.show(SMALL.with_(gpu="l40s"), memory)
    assert memory.earlier is not None and memory.earlier.settings.gpu == "rtx-4090"


def test_what_has_no_answer_is_said_in_one_line_and_forgotten_with_the_next_move() -> None:
    memory = view.Memory()
    html = view.show(SMALL.with_(gpu="t4", dtype="fp16", model="llama-3.1-70b"), memory)
    assert "does not fit" in html and "<svg" not in html
    assert "<svg" in view.show(SMALL, memory)


def test_a_limit_on_the_first_token_is_kept_or_refused() -> None:
    kept = SMALL.with_(ttft_s=0.5)
    assert explore(kept).plan.tile.ttft_floor_s <= 0.5
    assert "within 500 ms" in view.show(kept, view.Memory())
    refused = view.show(SMALL.with_(ttft_s=0.05), view.Memory())
    assert "the TTFT limit is 0.05 s" in refused and "<svg" not in refused


def test_text_from_outside_cannot_become_markup() -> None:
    html = view.show(SMALL.with_(gpu="<script>alert(1)</script>"), view.Memory())
    assert "<script" not in html and "&lt;script&gt;" in html


@pytest.mark.parametrize("mix", choices.MIXES)
def test_every_mix_starts_with_an_answer_inside_its_region(mix: str) -> None:
    classes = choices.MIXES[mix]
    settings = Settings(
        gpu="rtx-4090",
        classes=tuple(f"{c.name}={c.prompt_tokens}:{c.output_tokens}" for c in classes),
        rates=tuple(c.rate_per_s for c in classes),
        tbt_s=0.03,
    )
    assert explore(settings).inside


# ---------------------------------------------------------------------- the cells and the server


@needs_marimo
def test_the_cells_run_and_show_the_answer_to_their_own_controls() -> None:
    from tileq.explorer.page import app

    _, cells = app.run()
    settings = choices.settings_of({**cells["machine"].value, **cells["traffic"].value}, cells["classes"])
    assert cells["shown"].text == view.show(settings, view.Memory())
    from tileq_theory.hardware import gpu_names, model_names

    assert tuple(cells["machine"].elements["gpu"].options) == tuple(gpu_names())
    assert tuple(cells["machine"].elements["model"].options) == tuple(model_names())


@needs_marimo
def test_check_starts_answers_and_ends(capsys: Capture) -> None:
    assert run(["explore", "--check", "--port", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["url"].startswith("http://127.0.0.1:") and document["page_bytes"] > 1000
    assert min(document["start_s"], document["answer_s"], document["move_s"]) > 0
    assert run(["explore", "--check", "--port", "0"]) == 0
    assert "a moved slider" in capsys.readouterr().out
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(document["url"], timeout=5)


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command in a process of its own, once it has said where the page is."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tileq", "explore", "--port", "0", "--headless", "--json"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    said = ""
    while not said.endswith("}\n"):
        line = process.stdout.readline()
        assert line, f"ended before it was up: {process.stderr.read()}"
        said += line
    try:
        yield process, json.loads(said)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@needs_marimo
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM], ids=lambda kind: kind.name)
def test_the_server_answers_and_a_signal_ends_it_cleanly(
    served: tuple[subprocess.Popen[str], dict[str, Any]], kind: signal.Signals
) -> None:
    process, where = served
    with urllib.request.urlopen(where["url"], timeout=60) as answer:
        page = answer.read().decode()
    assert answer.status == 200 and "Tileq explorer" in page
    assert not re.findall(r'<(?:script|link|img)\b[^>]*(?:src|href)="(?:https?:)?//', page), "nothing from outside"
    process.send_signal(kind)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


# ---------------------------------------------------------------------- what cannot be


def complaint(arguments: list[str], capsys: Capture) -> str:
    assert run(["explore", "--check", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


@needs_marimo
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "65536"], "port is 65536; expected a whole number from 0"),
        (["--port", "-1"], "port"),
        (["--port", "1.5"], "'1.5' is not a whole number"),
        (["--port", "http"], "'http' is not a number"),
        (["--host", "nowhere.invalid"], "host is 'nowhere.invalid'; expected"),
        (["--host", "203.0.113.7", "--port", "0"], "host is '203.0.113.7'; expected"),
        (["--host", "a" * 300], "expected a name or an address of this machine"),
    ],
)
def test_an_address_that_cannot_be(arguments: list[str], says: str, capsys: Capture) -> None:
    assert says in complaint(arguments, capsys)


@needs_marimo
def test_a_port_that_is_taken(capsys: Capture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is taken" in complaint(["--port", str(port)], capsys)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in [n for n in sys.modules if n == "tileq.explorer.page"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "marimo", None)
    assert "pip install 'tileq[explore]'" in complaint([], capsys)
    assert run(["explore"]) == 2
    assert "pip install 'tileq[explore]'" in capsys.readouterr().err
