"""`run` and `runs ...`: start runs, look at them, follow, cancel and resume them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.commands import show
from scripts.commands.attend import attend
from scripts.commands.client import Api, ApiRefused, segment
from scripts.commands.driving import carry_on
from scripts.commands.follow import follow, story_of, stream
from scripts.commands.inprocess import Options, refuse_options, run_file
from scripts.commands.inputs import read_input, read_value
from scripts.commands.local_runs import InProcessOption
from scripts.commands.output import COMMAND, JsonOption, age, console, print_json, print_line, state, table
from scripts.commands.rebuild import rebuild
from scripts.commands.resume import resume
from scripts.commands.target import RunArgument, TokenOption, UrlOption, run_id, target

runs = typer.Typer(help="Look at runs, follow, cancel and resume them.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(run)
    runs.command()(resume)
    runs.command()(rebuild)
    app.add_typer(runs, name="runs")


def run(  # noqa: PLR0913 - options
    *,
    name: Annotated[str, typer.Argument(help="A workflow's name, or a workflow file.", metavar="NAME|FILE")],
    given: Annotated[
        str, typer.Option("--input", metavar="JSON|@FILE", help="The input as JSON, or from a file.")
    ] = "{}",
    fields: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE|KEY=@FILE", help="Set one field of the input, as text; repeatable."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key never starts a second run.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=1, help="The workflow's version; without it, the newest.")] = None,
    budget_mode: Annotated[
        str, typer.Option("--budget-mode", help="enforce, or audit: only record what limits would have refused.")
    ] = "enforce",
    watch: Annotated[bool, typer.Option("--watch", help="Follow the run until it ends.")] = False,
    until_human: Annotated[
        bool, typer.Option("--until-human", help="Follow it until it ends or needs a person.")
    ] = False,
    new: Annotated[
        bool, typer.Option("--new", help="FILE: start a run even where an interrupted one could go on.")
    ] = False,
    set_tool: Annotated[
        list[str] | None,
        typer.Option(
            "--set-tool", metavar="KEY=VALUE", help="FILE: a setting of the tools, such as ERP_URL; repeatable."
        ),
    ] = None,
    models_url: Annotated[
        str | None, typer.Option("--models-url", help="FILE: where models answer; or SIGNALBOX_MODELS_URL says it.")
    ] = None,
    by: Annotated[str, typer.Option("--as", metavar="NAME", help="FILE: who signs decisions made here.")] = "",
    trigger: Annotated[
        str, typer.Option("--trigger", metavar="ID", help="FILE: as if by this trigger; --input is what happened.")
    ] = "",
    url: UrlOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a run of a published workflow; or run a workflow file right here, without any cloud.

    signalbox run invoice --set document=@workflows/samples/contoso-en.txt --watch

    signalbox run invoice --input '{"document": "..."}' --idempotency-key mail-4711

    signalbox run workflows/invoice.yaml --set document=@workflows/samples/contoso-en.txt

    A FILE runs in this process and is followed until it ends. Whatever kills it, even kill -9: the same command goes
    on with the interrupted run, and no step that has completed runs again. Where the file has changed since, a run that
    has changed something outside is not left behind in silence: `runs resume` goes on with it, --new starts another.
    Tools come from the folder `tools` beside it, their settings from --set-tool or SIGNALBOX_TOOL_<KEY>. Models are
    real with ANTHROPIC_API_KEY, else rehearsed. Wherever a run goes on, its calls go where they went before, unless
    --set-tool or --models-url says otherwise. People decide in the terminal, or from another one with `signalbox
    approvals`. Runs are kept in .signalbox/runs.db, or where SIGNALBOX_RUNS says.
    """
    if budget_mode not in {"enforce", "audit"}:
        raise typer.BadParameter("use enforce or audit", param_hint="--budget-mode")
    audit = budget_mode == "audit"
    if "/" in name or name.endswith((".yaml", ".yml")):
        refuse_options("is for a published workflow; a file runs as it stands", version=version)
        given_options = Options(set_tool or (), models_url, by, new, key, until_human, as_json, audit, trigger)
        data = read_value(given, "--input") if trigger and not fields else read_input(given, fields or [])
        return run_file(Path(name), data, given_options)
    only = "is for a workflow file: name it with its folder, or with .yaml"
    refuse_options(only, new=new, set_tool=set_tool, as_=by, trigger=trigger)
    body: dict[str, Any] = {"input": read_input(given, fields or [])} | ({"version": version} if version else {})
    body |= {"budget_mode": budget_mode} if audit else {}
    api = target(url, token)
    status, answer = _start(api, name, body, key)
    found = str(answer["run"])
    if not (watch or until_human):
        return print_json(answer) if as_json else _started(found, new=status == 201)  # noqa: PLR2004 - Created
    if as_json:
        print_line(answer)
    else:
        console().print(f"Run [bold]{found}[/] of {name}")
    _watch(api, found, until_human=until_human, as_json=as_json)
    return None


def _start(api: Api, name: str, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
    try:
        return api.post(f"/v1/workflows/{segment(name)}/runs", body, key=key)
    except ApiRefused as refused:
        if refused.status == 404 and not refused.remedy:  # noqa: PLR2004 - Not Found
            refused.remedy = _published(api, name)
        raise


def _published(api: Api, name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    found = [str(each["workflow"]) for each in api.get("/v1/workflows")["workflows"]]
    close = get_close_matches(name, found, n=1)
    if close and name not in found:
        return f"Did you mean {close[0]}?"
    return f"Published: {', '.join(sorted(found)) or 'none'}."


def _started(found: str, *, new: bool) -> None:
    console().print(f"Run [bold]{found}[/] {'started' if new else 'had already been started with this key'}.")
    console().print(f"Follow it: {COMMAND} runs watch {found}", style="dim", soft_wrap=True)


@runs.command("list")
def list_(  # noqa: PLR0913 - options
    *,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    in_state: Annotated[str | None, typer.Option("--state", help="Only runs in this state, such as paused.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    before: Annotated[str | None, typer.Option(help="Only runs older than this one.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first."""
    answer = target(url, token, in_process=in_process).get(
        "/v1/runs", workflow=workflow, state=in_state, limit=limit, before=before
    )
    if as_json:
        return print_json(answer)
    rows = [
        (r["id"], r["workflow"], str(r["version"]), state(r["state"]), age(r["created_at"])) for r in answer["runs"]
    ]
    table(("RUN", "WORKFLOW", "VERSION", "STATE", "STARTED"), rows, right=["VERSION"], empty="No runs.")
    if answer.get("next"):
        console().print(f"More: {COMMAND} runs list --before {answer['next']}", style="dim", soft_wrap=True)
    return None


@runs.command("show")
def show_run(
    *,
    run: RunArgument,
    outputs: Annotated[bool, typer.Option("--outputs", help="Show what the steps returned, too.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a run: its steps, what they cost, its limits, its gates. JSON has the outputs in any case."""
    api = target(url, token, in_process=in_process, about=run)
    found = api.get(f"/v1/runs/{segment(run_id(api, run))}")
    if as_json:
        print_json(found)
    else:
        show.run(found, outputs=outputs)


@runs.command()
def watch(  # noqa: PLR0913 - options
    *,
    run: RunArgument,
    until_human: Annotated[bool, typer.Option("--until-human", help="Stop also when it needs a person.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Begin after this event.")] = 0,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Follow a run until it ends; steps are shown as they finish. Ctrl-C leaves the run alone.

    Exit code 0: completed (or, with --until-human, a person is needed now).
    With --json, one event a line, then the state.
    """
    api = target(url, token, in_process=in_process, about=run)
    _watch(api, run_id(api, run), until_human=until_human, as_json=as_json, after=after)


def _watch(api: Api, run: str, *, until_human: bool, as_json: bool, after: int = 0) -> None:
    def watched() -> str:
        return (stream if as_json else follow)(api, story_of(api, run, after), until_human=until_human)

    goes_on = f"The run goes on. Follow it again: {COMMAND} runs watch {run}"
    attend(api, run, watched, interrupted=goes_on, until_human=until_human, as_json=as_json)


@runs.command()
def events(  # noqa: PLR0913 - options
    *,
    run: RunArgument,
    after: Annotated[int, typer.Option(min=0, help="Begin after this event.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 200,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a run's log: everything that happened, numbered without gaps."""
    api = target(url, token, in_process=in_process, about=run)
    answer = api.get(f"/v1/runs/{segment(run_id(api, run))}/events", after=after, limit=limit)
    if as_json:
        print_json(answer)
    else:
        show.events(answer["events"])


_KEPT = "is kept until a step waits for it, or one whose `match` lets it through."


@runs.command()
def send(  # noqa: PLR0913 - options
    *,
    run: RunArgument,
    name: Annotated[str, typer.Argument(help="The event's name.", metavar="EVENT")],
    data: Annotated[str, typer.Option("--data", metavar="JSON|@FILE", help="The event's data.")] = "null",
    key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key never delivers a second event.")
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send a run an event that a wait step waits for. One that comes early is kept until the step is reached."""
    api = target(url, token, in_process=in_process, about=run)
    run = run_id(api, run)
    body = {"name": name, "data": read_value(data, "--data")}
    _, answer = api.post(f"/v1/runs/{segment(run)}/events", body, key=key)
    if as_json:
        print_json(answer)
    else:
        console().print(f"Event {name} {'completed a wait.' if answer['used'] else _KEPT}")


@runs.command()
def cancel(
    *,
    run: RunArgument,
    reason: Annotated[str, typer.Option(help="Why; it is kept in the log.")] = "",
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """End a run: no step opens any more, completed reversible steps are undone."""
    api = target(url, token, in_process=in_process, about=run)
    run = run_id(api, run)
    _, answer = api.post(f"/v1/runs/{segment(run)}/cancel", {"reason": reason} if reason else {})
    carry_on(api, answer, f"Run {run} is being cancelled.", as_json=as_json)
