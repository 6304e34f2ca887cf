"""`dead-letters ...`: steps that have finally failed, and how they run again."""

from typing import Annotated

import typer

from scripts.commands import show
from scripts.commands.local_runs import InProcessOption
from scripts.commands.output import COMMAND, JsonOption, age, console, print_json, table
from scripts.commands.resume import RunArgument, resume_ended
from scripts.commands.target import TokenOption, UrlOption, run_id, target

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
    """List steps that have finally failed, newest first: those that nobody retries, and no person was asked about."""
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
            age(each["failed_at"]),
            show.escaped(" ".join(each["error"]["message"].split())[:80]),
        )
        for each in answer["dead_letters"]
    ]
    columns = ("RUN", "STEP", "WORKFLOW", "CLASS", "ATTEMPTS", "FAILED", "WHY")
    table(columns, rows, right=["ATTEMPTS"], empty="No dead letters.")
    if rows:
        console().print(f"Run them again: {COMMAND} dead-letters redrive RUN", style="dim")
    return None


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
