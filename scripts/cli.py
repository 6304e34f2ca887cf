"""The command line `signalbox`: puts the groups of commands together and turns errors into words and exit codes."""

import os
import sys
import time
import traceback

import typer

from scripts.commands import approvals, definitions, deploy, doctor, local, runs
from scripts.commands.output import ROOT, Refused, report

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
for module in (local, definitions, runs, approvals, deploy, doctor):
    module.add_to(app)


def main() -> None:
    """Run the command line; every way out has an exit code and, when something is wrong, words."""
    try:
        app(prog_name="signalbox")
    except Refused as refused:
        report(refused, as_json="--json" in sys.argv)
        raise SystemExit(1) from None
    except Exception as error:  # noqa: BLE001 - nobody should see a stack trace; it is kept in a file
        report(_unexpected(error), as_json="--json" in sys.argv)
        raise SystemExit(1) from None


def _unexpected(error: Exception) -> Refused:
    log = ROOT / ".signalbox" / "cli.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"\n{time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(sys.argv[1:])}\n{traceback.format_exc()}")
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    remedy = f"This is a fault of Signalbox itself. The details are in {os.path.relpath(log)}; please report them."
    return Refused(what, remedy, code="internal")


if __name__ == "__main__":
    main()
