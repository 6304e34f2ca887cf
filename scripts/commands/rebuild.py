"""`runs rebuild`: a run's records recomputed from its log."""

import json
from typing import Annotated

import typer

from scripts.commands import show
from scripts.commands.client import segment
from scripts.commands.local_runs import InProcessOption
from scripts.commands.output import COMMAND, JsonOption, console, print_json, table
from scripts.commands.target import TokenOption, UrlOption, run_id, target


def rebuild(
    *,
    run: Annotated[str, typer.Argument(help="The run's id, or `latest`.", metavar="RUN")],
    repair: Annotated[bool, typer.Option("--repair", help="Write what the log says. Without it, only tell.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Recompute a run's records from its log and tell where they differ. Needs the role admin.

    The log is the truth. Recomputed are, of every step, its attempts, whether one is open, what it holds and has spent,
    and its status where that is final or waits for a person; of the run, its counters, what is left of its limits, how
    it unwinds and has ended, and its state in lists. Not recomputed are limits, gates, outputs and active time. Exit
    code 1 while differences remain.
    """
    api = target(url, token, in_process=in_process, about=run)
    _, answer = api.post(f"/v1/runs/{segment(run_id(api, run))}/rebuild", {"repair": repair})
    if as_json:
        print_json(answer)
    else:
        rows = [
            (each["record"], each["field"], _shown(each["known"]), _shown(each["told"]))
            for each in answer["differences"]
        ]
        table(("RECORD", "FIELD", "IS", "LOG SAYS"), rows, empty="The records are what the log says.")
        if rows:
            told = "Repaired." if repair else f"Repair: {COMMAND} runs rebuild {answer['run']} --repair"
            console().print(told, style="dim", soft_wrap=True)
    if answer["differences"] and not repair:
        raise typer.Exit(1)


def _shown(value: object) -> str:
    return show.escaped(value if isinstance(value, str) else json.dumps(value))
