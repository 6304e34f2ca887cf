"""`runs rebuild`: a run's records recomputed from its log."""

import json
from typing import Annotated, Any

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

    The log is the truth. Recomputed are, of every step, its attempts and retries, whether one is open, what it holds
    and has spent, where it stands, its call's key and dispatch, its route, who gave its result, and whether its output
    is still the same; of every gate, its decision, by whom, and which arguments it is bound to; of the run, its epoch,
    its counters, what is left of its limits, how it unwinds and has ended, and its state in lists. An output or a
    record that is gone or was replaced is told and cannot be repaired: the log holds no values. Not compared are
    limits and active time, who waits for what until when, failures, and what lies in the blob store. Exit code 1 while
    differences remain.
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
        table(("RECORD", "FIELD", "IS", "LOG SAYS"), rows, empty=_AGREE)
        if rows:
            console().print(_after(answer, repair=repair), style="dim", soft_wrap=True)
    if _remain(answer, repair=repair):
        raise typer.Exit(1)


_AGREE = (
    "All that the log tells of is as it says. Not compared: limits, active time, failures, who waits for what until "
    "when, and what lies in the blob store."
)


def _remain(answer: dict[str, Any], *, repair: bool) -> int:
    """Return how many differences there still are."""
    return sum(each["lost"] or not repair for each in answer["differences"])


def _after(answer: dict[str, Any], *, repair: bool) -> str:
    """Say what was repaired, what could be, and what cannot."""
    lost = sum(each["lost"] for each in answer["differences"])
    left = f" The log does not hold what {lost} of them had: that stays as it is." if lost else ""
    repaired = "Repaired." if repair else f"Repair: {COMMAND} runs rebuild {answer['run']} --repair."
    return f"{repaired}{left}" if lost < len(answer["differences"]) else left.strip()


def _shown(value: object) -> str:
    return show.escaped(value if isinstance(value, str) else json.dumps(value))
