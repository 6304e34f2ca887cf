"""Runs a command line of ours: what is printed names commands as the user types them, every way out has words."""

import os
import re
import signal
import sys
import time
import traceback

import typer
from typer.exceptions import TyperException

from scripts.commands.output import ROOT, Refused, hint, report

_EXAMPLE = re.compile(r"\S*signalbox |(\w+=\S+ )+signalbox |eval ")


def start(app: typer.Typer, name: str) -> None:
    """Run `app`, called `name` in its help, and end the process: 0 done, 1 refused or failed, 2 wrong usage."""
    as_json = "--json" in sys.argv
    signal.signal(signal.SIGINT, signal.default_int_handler)  # until now, Ctrl-C just ended the process
    command = typer.main.get_command(app)
    _name_commands(command)
    try:
        # Programs get wrong usage as JSON too.
        code = command(prog_name=name, standalone_mode=not as_json)
    except Refused as refused:
        report(refused, as_json=as_json)
    except TyperException as wrong:
        context = getattr(wrong, "ctx", None)
        remedy = f"`{context.command_path if context else name} --help` says more."
        report(Refused(wrong.format_message(), remedy, code="wrong_usage"), as_json=as_json)
        raise SystemExit(wrong.exit_code) from None
    except Exception as error:  # noqa: BLE001 - nobody should see a stack trace; it is kept in a file
        report(_unexpected(error), as_json=as_json)
    else:
        raise SystemExit(code)
    raise SystemExit(1)


def _name_commands(command: object) -> None:
    """Make the examples of all help texts such that they can be copied: named as the user types them, not wrapped."""
    told = getattr(command, "help", None)
    if told:
        parts = (f"\b\n{part}" if _EXAMPLE.match(part) else part for part in told.split("\n\n"))
        command.help = hint("\n\n".join(parts))  # pyright: ignore[reportAttributeAccessIssue]
    for inner in getattr(command, "commands", {}).values():
        _name_commands(inner)


def _unexpected(error: Exception) -> Refused:
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    remedy = "This is a fault of Signalbox itself"
    log = ROOT / ".signalbox" / "cli.log"
    try:
        log.parent.mkdir(exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"\n{time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(sys.argv[1:])}\n{traceback.format_exc()}")
    except OSError:  # a clone that cannot be written to
        return Refused(what, f"{remedy}; please report it.", code="internal")
    return Refused(what, f"{remedy}. The details are in {os.path.relpath(log)}; please report them.", code="internal")
