"""SLAI inside vLLM on a machine that can be slowed: a file says how much longer an iteration takes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tileq_engine.vllm.classes import SlaiScheduler


class SlowedScheduler(SlaiScheduler):  # type: ignore[misc]
    """Waits before it takes an output: as long as $TILEQ_TEST_SLOWED says, seconds an iteration and a token."""

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        tokens = scheduler_output.total_num_scheduled_tokens
        if tokens:
            extra = json.loads(Path(os.environ["TILEQ_TEST_SLOWED"]).read_text(encoding="utf-8"))
            time.sleep(extra["launch_s"] + extra["token_s"] * tokens)
        return super().update_from_output(scheduler_output, model_runner_output)
