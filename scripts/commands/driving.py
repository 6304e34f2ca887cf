"""In-process runs that no process drives: whoever says how they go on, goes on with them."""

from typing import Any

from scripts.commands.client import Api
from scripts.commands.follow import TERMINAL
from scripts.commands.inprocess import go_on
from scripts.commands.local_runs import LocalRuns
from scripts.commands.output import COMMAND, console, print_json, print_line


def carry_on(api: Api, answer: dict[str, Any], told: str, *, as_json: bool) -> None:
    """Tell what was taken; go on here with an in-process run that no process drives, by leaving with typer.Exit."""
    run = str(answer["run"])
    undriven = _undriven(api, run)
    if as_json:
        (print_line if undriven else print_json)(answer)  # the first of several lines, or the only value
    else:
        console().print(told if undriven else f"{told} Follow it: {COMMAND} runs watch {run}", soft_wrap=True)
    drive(api, run, as_json=as_json)


def _undriven(api: Api, run: str) -> bool:
    return isinstance(api, LocalRuns) and api.undriven(run) and api.get(f"/v1/runs/{run}")["state"] not in TERMINAL


def drive(api: Api, run: str, *, as_json: bool) -> None:
    """Go on with an in-process run that no process drives. Leaves by typer.Exit then."""
    if isinstance(api, LocalRuns) and _undriven(api, run):
        go_on(api, run, as_json=as_json)
