"""The command line `signalbox`: puts the groups of commands together."""

from typing import Annotated

import typer

from scripts.commands import (
    approvals,
    budgets,
    deadletters,
    definitions,
    deploy,
    doctor,
    local,
    plan,
    runs,
    secrets,
    sweep,
    triggers,
)
from scripts.commands.output import COMMAND, version
from scripts.commands.program import start

HELP = """
Signalbox runs AI workflows on AWS: steps in order, side effects once, money refused before it is spent.

Start with `signalbox up`: a local cloud, no account needed. Then

signalbox run invoice --set document=@workflows/samples/contoso-en.txt --watch

Exit codes: 0 done · 1 refused or failed · 2 wrong usage. Every command takes --json.
"""

app = typer.Typer(
    name="signalbox",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help in half the time
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted:
        typer.echo(f"signalbox {version()}")
        raise typer.Exit


@app.callback()
def signalbox(
    *,
    shows_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that come before a command."""


GROUPS = (local, definitions, plan, runs, triggers, approvals, budgets, secrets, deadletters, sweep, deploy, doctor)
for module in GROUPS:
    module.add_to(app)


def main() -> None:
    """Run the command line."""
    start(app, COMMAND)


if __name__ == "__main__":
    main()
