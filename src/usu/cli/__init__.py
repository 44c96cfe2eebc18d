"""The command ``usu``. One file per command; this one joins them and turns errors into one sentence.

Exit codes: 0 done, 1 done and something did not hold or some pictures failed, 2 the request was wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from usu.cli import audit, compare, doctor, evaluate, explain
from usu.errors import UsuError

app = typer.Typer(
    name="usu",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("explain")(explain.explain)
app.command("compare")(compare.compare)
app.command("evaluate")(evaluate.evaluate)
app.command("audit")(audit.audit)
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"usu-xai {version('usu-xai')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn coarse attribution maps into pixel maps by redistributing their mass."""


def main() -> None:
    """Run the command line."""
    try:
        app()
    except (UsuError, ValueError, TypeError, OSError) as error:
        _complain(str(error) or type(error).__name__)
        sys.exit(2)
    except KeyboardInterrupt:
        _complain("interrupted; what was finished is kept")
        sys.exit(130)


def _complain(sentence: str) -> None:
    sys.stderr.write(f"usu: {sentence}\n")
