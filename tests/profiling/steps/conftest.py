"""Makes the writer of server logs importable under one name for all test modules of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("step_logs", Path(__file__).with_name("step_logs.py"))
if _SPEC is None or _SPEC.loader is None:
    raise ImportError("step_logs.py is missing beside this file")
sys.modules["step_logs"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules["step_logs"])
