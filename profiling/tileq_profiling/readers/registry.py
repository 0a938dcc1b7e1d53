"""All readers: one line each. A format is chosen by its content; the file's name is never looked at.

To add a format: a module that defines `READERS` (see `base.Reader`; `base.csv_reader` is enough for most CSV files)
and a line in `READERS` below. The highest score of `sniff` wins, so more specific evidence should score higher.
"""

from __future__ import annotations

__all__ = ["READERS", "read_trace", "reader_names"]

import csv
import zlib
from collections.abc import Callable
from pathlib import Path

from tileq_profiling.readers import (
    aiperf,
    azure,
    burstgpt,
    burstgpt_replay,
    generic,
    guidellm,
    llmservingsim,
    prefix_traces,
    run_json,
    servegen,
    serving_csv,
    sglang_bench,
    splitwise,
    text_json,
    vidur,
    vllm_bench,
)
from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import Zeros
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError, near_matches

READERS: tuple[Reader, ...] = (
    *azure.READERS,
    *vidur.READERS,
    *burstgpt.READERS,
    *burstgpt_replay.READERS,
    *prefix_traces.READERS,
    *servegen.READERS,
    *llmservingsim.READERS,
    *splitwise.READERS,
    *serving_csv.READERS,
    *vllm_bench.READERS,
    *sglang_bench.READERS,
    *run_json.READERS,
    *guidellm.READERS,
    *aiperf.READERS,
    *text_json.READERS,
    *generic.READERS,
)


def reader_names() -> dict[str, str]:
    """Return every format that `read_trace` knows, with one line about each."""
    return {reader.name: reader.summary for reader in READERS if reader.reads}


def read_trace(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - the word users look for
    *,
    zeros: Zeros | None = None,
    run: int | None = None,
    count_tokens: Callable[[str], int] | None = None,
    chars_per_token: float | None = None,
) -> Trace:
    """Return the requests recorded in a file, whatever tool wrote it.

    Parameters
    ----------
    path
        A text file, plain or gzip.
    format
        Name in `reader_names()`; chosen by looking at the content when None.
    zeros
        'skip' leaves out and counts rows with 0 prompt or output tokens, 'error' refuses them; None leaves it to
        the format: recordings (production traces, benchmark runs) skip them as requests that were not served,
        files that define a workload (Vidur lengths, splitwise-sim, LLMServingSim, any CSV) refuse them.
    run
        Which run, from 1, of a file that holds several.
    count_tokens
        Tokenizer for files that hold text (ShareGPT): text -> number of tokens.
    chars_per_token
        For files whose output length is in characters (BurstGPT replays).

    Raises
    ------
    InputError
        The file cannot be read, is of no known format, or has a row that is not right (row and field are named).
    """
    options = Options(zeros, run, count_tokens, chars_per_token)
    try:
        source = Source(path)
        return _choose(source, format).read(source, options)
    except UnicodeDecodeError as problem:
        raise InputError(f"{path} is not UTF-8 text ({problem.reason}); save it as UTF-8") from None
    except (EOFError, zlib.error) as problem:
        raise InputError(f"{path} is a damaged gzip file ({problem}); unpack it again or fetch it anew") from None
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be a trace") from None
    except csv.Error as problem:
        raise InputError(f"{path} cannot be read as CSV: {problem}") from None


def _choose(source: Source, name: str | None) -> Reader:
    if name is not None:
        for reader in READERS:
            if reader.name == name:
                return reader
        raise InputError(f"unknown trace format {name!r}; {near_matches('formats', name, reader_names())}")
    scores = [(reader.sniff(source), reader) for reader in READERS]
    best = max(score for score, _ in scores)
    if best <= 0:
        raise InputError(
            f"{source.name} is of no known format: {source.shape}; known formats: {', '.join(reader_names())}; or name "
            "CSV columns prompt_tokens, output_tokens, arrival_s"
        )
    return next(reader for score, reader in scores if score == best)
