"""The rest of the library neither needs nor imports torch; the decoder says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_nothing_imports_torch_before_it_is_used() -> None:
    code = """
import sys
import tileq, tileq_engine, tileq_engine.decoder, tileq_profiling
from tileq_engine.decoder import DecoderConfig
assert DecoderConfig.small().parameters == 3475712
assert not {"torch", "triton", "transformers"} & set(sys.modules)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_without_torch_one_line_says_what_to_install() -> None:
    code = """
import sys
sys.modules["torch"] = None
from tileq_theory.errors import InputError
import tileq_engine.decoder
try:
    tileq_engine.decoder.Decoder
except InputError as error:
    text = str(error)
assert "tileq_engine.decoder.Decoder needs PyTorch 2.11" in text and "pip install" in text and "\\n" not in text
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
