"""Run the command line once and turn whatever happens into an exit status and at most one line on stderr.

0 success; 1 failure (a solver without an answer, a bug); 2 bad input; 130 interrupted. TILEQ_DEBUG=1 adds the
traceback of a failure.
"""

from __future__ import annotations

__all__ = ["run"]

import os
import sys
from collections.abc import Sequence
from pathlib import Path

BAD_INPUT = 2
FAILURE = 1
INTERRUPTED = 130
DEBUG_VARIABLE = "TILEQ_DEBUG"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run `tileq` with these arguments (the process's own by default) and return the exit status."""
    _open_streams()
    try:
        status = _dispatch(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    return status


def _open_streams() -> None:
    """Give a process that was started with a closed output (`2>&-`) one that swallows what is written."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _dispatch(arguments: list[str]) -> int:
    from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

    from tileq.cli.app import app
    from tileq.cli.help_screen import fitted, note
    from tileq.cli.naming import unexpected_word

    try:
        app(fitted(app, arguments), print_error=False, exit_on_error=False, verbose=False, result_action="return_value")
        sys.stdout.write(note(app))
    except UnusedCliTokensError as error:
        extra = " ".join(repr(token) for token in error.unused_tokens or ())
        return _complain(f"error: unexpected argument {extra} {_help_of(arguments)}", BAD_INPUT)
    except UnknownCommandError as error:
        return _complain(f"error: {error} {_help_of(arguments)}", BAD_INPUT)
    except MissingArgumentError as error:
        word = unexpected_word(app, arguments)  # which may stand where an option was meant
        what = f"unexpected argument {word!r}" if word is not None else str(error)
        return _complain(f"error: {what} {_help_of(arguments)}", BAD_INPUT)
    except CycloptsError as error:
        return _complain(f"error: {error} {_help_of(arguments)}", BAD_INPUT)
    except BrokenPipeError:
        raise
    except Exception as error:
        return _failed(error, arguments)
    return 0


def _failed(error: Exception, arguments: list[str]) -> int:
    # imported here: a command that only shows its help should not pay for the theory
    from tileq_theory.errors import InputError, TileqError

    if isinstance(error, InputError):
        from tileq.cli.app import app
        from tileq.cli.naming import by_option

        return _complain(f"error: {by_option(app, arguments, str(error))}", BAD_INPUT)
    if isinstance(error, TileqError):
        return _complain(f"error: {error}", FAILURE)
    return _unexpected(error)


def _unexpected(error: Exception) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "" if os.environ.get(DEBUG_VARIABLE) else f" ({DEBUG_VARIABLE}=1 shows where)"
    return _complain(f"failed: {what}{hint}", FAILURE)


def _help_of(arguments: list[str]) -> str:
    from tileq.cli.app import app

    commands, _, _ = app.parse_commands(arguments)
    return f"({' '.join(['tileq', *commands, '--help'])})"


def _complain(message: str, status: int) -> int:
    # one line whatever the message holds: scripts read stderr by line
    print("tileq:", " ".join(message.split()), file=sys.stderr)  # noqa: T201
    return status


def _reader_left() -> int:
    """Whoever read our output has enough (`| head`); keep the interpreter from complaining at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    return 0
