"""`dead-letters ...`: steps that have finally failed, and how they run again."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.commands import show
from scripts.commands.client import Api, segment
from scripts.commands.follow import RESUMABLE
from scripts.commands.local_runs import InProcessOption, LocalRuns
from scripts.commands.output import COMMAND, JsonOption, age, console, print_json, relative, state, table
from scripts.commands.resume import resume_ended
from scripts.commands.target import RunArgument, TokenOption, UrlOption, run_id, target

letters = typer.Typer(help="Steps that have finally failed.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.add_typer(letters, name="dead-letters")


@letters.command("list")
def list_(
    *,
    workflow: Annotated[str | None, typer.Option(help="Only those of this workflow.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 50,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """List steps that have finally failed, newest first: those that nobody retries, and calls that were given up."""
    api = target(url, token, in_process=in_process)
    answer = api.get("/v1/dead-letters", workflow=workflow, limit=limit)
    if as_json:
        return print_json(answer)
    rows = [
        (
            each["run"],
            each["path"],
            each["workflow"],
            each["error"]["class"],
            str(each["attempts"]),
            state(each["state"]),
            age(each["failed_at"]),
            show.escaped(" ".join(each["error"]["message"].split())[:80]),
        )
        for each in answer["dead_letters"]
    ]
    columns = ("RUN", "STEP", "WORKFLOW", "CLASS", "ATTEMPTS", "RUN IS", "FAILED", "WHY")
    table(columns, rows, right=["ATTEMPTS"], empty="No dead letters.")
    for line in _ways_on(api, answer["dead_letters"]):
        console().print(line, style="dim", soft_wrap=True)
    return None


def _ways_on(api: Api, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what can be done about dead letters, by how their runs stand."""
    runs = {each["top"]: each["state"] for each in found}
    for run in sorted(run for run, now in runs.items() if now in RESUMABLE):
        yield f"Run it again: {COMMAND} dead-letters redrive {run}"
    without = {each["top"]: each["workflow"] for each in found if each["state"] == "completed"}
    for run in sorted(without):
        new = f"{COMMAND} run {_named(api, run, without[run])} --input JSON"
        off = f"{COMMAND} dead-letters dismiss RUN"
        yield f"Run {run} went on without it and has completed: start a new one ({new}), then take it off: {off}"
    if set(runs.values()) - RESUMABLE - {"completed"}:
        yield "What belongs to a run that still goes on can be run again when that has ended otherwise than completed."


def _named(api: Api, run: str, workflow: str) -> str:
    """Return how a new run of the same is started: by the workflow's name, or by the file that is run here."""
    return relative(Path(api.workspace.file_of(run))) if isinstance(api, LocalRuns) else workflow


@letters.command()
def redrive(
    *,
    run: RunArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run again what has finally failed in a run that has ended: the same as `runs resume RUN`.

    What was completed stays and is not paid again. While the run goes on, it is resumed step by step instead.
    """
    api = target(url, token, in_process=in_process, about=run)
    resume_ended(api, run_id(api, run), {}, as_json=as_json)


@letters.command()
def dismiss(
    *,
    run: RunArgument,
    path: Annotated[str | None, typer.Argument(help="The step; without it, all of the run.", metavar="[PATH]")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take dead letters off the list that somebody has seen to. Nothing is run again, and no run is changed.

    signalbox dead-letters dismiss latest

    signalbox dead-letters dismiss RUN each[3]/post
    """
    api = target(url, token, in_process=in_process, about=run)
    found = run_id(api, run)
    body = {"path": path} if path else {}
    _, answer = api.post(f"/v1/runs/{segment(found)}/dead-letters/dismiss", body)
    if as_json:
        return print_json(answer)
    console().print(f"Off the list: {show.escaped(', '.join(answer['dismissed']))} of run {found}.", soft_wrap=True)
    return None
