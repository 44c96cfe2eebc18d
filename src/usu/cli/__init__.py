"""The command ``usu``. One file per command; this one joins them and turns errors into one sentence.

Exit codes: 0 done, 1 done and something did not hold or some pictures failed, 2 the request was wrong, 130 interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Everything is imported in here, so that Ctrl-C has one answer at any time."""
    interrupted = "usu: interrupted; what was finished is kept\n"
    try:
        from usu.errors import UsuError

        try:
            import typer

            from usu.cli import app, audit, compare, doctor, evaluate, explain, run

            command = typer.Typer(
                name="usu", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
            )
            command.callback()(run.options)
            for one in (explain.explain, app.app, compare.compare, evaluate.evaluate, audit.audit, doctor.doctor):
                command.command()(one)
            command()
        except (UsuError, ValueError, TypeError, OSError, OverflowError, MemoryError) as error:
            from usu.cli.run import note, sentence_of

            note(sentence_of(error))
            sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write(interrupted)
        sys.exit(130)
    except SystemExit as end:
        # typer turns Ctrl-C into a silent exit
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            sys.stderr.write(interrupted)
        raise
