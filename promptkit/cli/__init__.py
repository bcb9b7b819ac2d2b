"""The ``promptkit`` command (extra ``cli``): run, render and check prompts, compare and generate.

Data goes to stdout, in UTF-8; everything meant for a person goes to stderr. Exit codes:

====  ==========================================================================
0     it worked
1     problems found: in a file (`DocumentError`), a setting or a credential; or files differ
2     wrong usage of the command
3     the request is invalid (`InvalidRequestError`)
4     generation failed (`GenerationError`)
5     the output was invalid after the last repair (`OutputValidationError`)
6     the backend is full (`CapacityExceededError`)
7     cancelled, or out of time (`RunCancelledError`, `DeadlineExceededError`)
====  ==========================================================================

Where whoever reads stdout has stopped reading, as in ``promptkit check | head -1``, the command ends with 141, as
shells report it of any other program.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command with the arguments of the process, and exit with its code."""
    try:
        from promptkit.cli._app import app
    except ModuleNotFoundError as exc:
        needed = (exc.name or "").partition(".")[0]
        if needed not in {"click", "rich"}:
            raise
        sys.stderr.write(
            f'the promptkit command needs {needed}; install it with: python -m pip install "promptkit[cli]"\n'
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(7)
    app(prog_name="promptkit")
