"""`approvals ...`: what waits for a person's decision, and deciding it."""

from typing import Annotated, Any

import typer

from scripts.commands import show
from scripts.commands.client import Api, segment
from scripts.commands.inputs import read_changes
from scripts.commands.local_runs import InProcessOption, LocalRuns, signature
from scripts.commands.output import COMMAND, JsonOption, Refused, age, console, hint, print_json, state, table
from scripts.commands.target import LATEST, TokenOption, UrlOption, target

Id = Annotated[
    str, typer.Argument(metavar="APPROVAL", help="The approval's id, or a run's that waits for just one, or `latest`.")
]
Note = Annotated[str, typer.Option(help="A note; later steps can read it.")]
Digest = Annotated[str | None, typer.Option(help="What you were shown; refused when it is something else by now.")]
By = Annotated[
    str, typer.Option("--as", metavar="NAME", help="Who decides, in an in-process run; without it, the system's user.")
]
approvals = typer.Typer(help="What waits for a person's decision, and deciding it.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.add_typer(approvals, name="approvals")


@approvals.command("list")
def list_(
    *,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 50,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """List what waits for a decision, newest first."""
    answer = target(url, token, in_process=in_process).get("/v1/approvals", limit=limit)
    if as_json:
        return print_json(answer)
    rows = [
        (
            a["id"],
            a["workflow"],
            show.escaped(" ".join(a["subject"].split())),
            ", ".join(a["roles"]) + (f" (tier {a['tier']})" if a["tier"] > 1 else ""),
            show.count(a),
            age(a["opened_at"]),
        )
        for a in answer["approvals"]
    ]
    columns = ("APPROVAL", "WORKFLOW", "SUBJECT", "ASKED OF", "HAS", "OPENED")
    return table(columns, rows, empty="Nothing waits for a decision.")


@approvals.command("show")
def show_one(
    *,
    approval: Id,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what an approval would let run, with its exact arguments."""
    found = _find(target(url, token, in_process=in_process, about=approval), approval)
    if as_json:
        print_json(found)
    else:
        show.approval(found)


def _decision(name: str, told: str) -> None:
    """Add the command that takes decision `name`; `told` is its help."""

    def decide(  # noqa: PLR0913 - options
        *,
        approval: Id,
        note: Note = "",
        digest: Digest = None,
        by: By = "",
        url: UrlOption = None,
        token: TokenOption = None,
        in_process: InProcessOption = False,
        as_json: JsonOption = False,
    ) -> None:
        api = _signed(target(url, token, in_process=in_process, about=approval), by)
        _decide(api, approval, {"decision": name, "note": note}, digest, as_json=as_json)

    approvals.command(name, help=told)(decide)


_decision("approve", "Approve exactly what the approval shows. Approving twice lets it run once.")
_decision("reject", "Reject it: what it would have let run is skipped.")


@approvals.command("edit")
def edit(  # noqa: PLR0913 - options
    *,
    approval: Id,
    changes: Annotated[
        str, typer.Option(metavar="JSON", help="The changes (a JSON Merge Patch: null removes), or @FILE.")
    ] = "{}",
    fields: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One argument: JSON where it is, else text.")
    ] = None,
    note: Note = "",
    digest: Digest = None,
    by: By = "",
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Approve it with changes: what runs are the arguments as you change them. `show` says which you may."""
    made = read_changes(changes, fields or [])
    api = _signed(target(url, token, in_process=in_process, about=approval), by)
    _decide(api, approval, {"decision": "edit", "note": note, "changes": made}, digest, as_json=as_json)


def _signed(api: Api, by: str) -> Api:
    """Return the API that takes a decision of `by`. Raises BadParameter where a token says who decides."""
    if not by:
        return api
    if not isinstance(api, LocalRuns):
        what = "is for runs of this machine (`signalbox run FILE`); there, the token says who decides"
        raise typer.BadParameter(hint(what), param_hint="--as")
    api.by = signature(by)
    return api


def _decide(api: Api, approval: str, body: dict[str, Any], digest: str | None, *, as_json: bool) -> None:
    found = _find(api, approval)
    # Bound to what was just read: if it changed in between, the API refuses.
    body |= {"digest": digest if digest is not None else found["digest"] or ""}
    _, decided = api.post(f"/v1/approvals/{segment(str(found['id']))}", body)
    if as_json:
        print_json(decided)
        return
    subject = show.escaped(" ".join(str(decided["subject"]).split()))
    console().print(f"{_outcome(decided)}: {subject}", soft_wrap=True)
    run = str(decided["run"])
    way = "No process drives the run; go on: {} resume" if api.stands_still(run) else "Follow the run: {} watch"
    console().print(f"{way.format(f'{COMMAND} runs')} {run}", style="dim", soft_wrap=True)


def _outcome(decided: dict[str, Any]) -> str:
    """Return what has become of it by this decision; one of several that are needed leaves it open."""
    return f"approved, {show.count(decided)}" if decided["status"] == "open" else state(decided["status"])


def _find(api: Api, approval: str) -> dict[str, Any]:
    if "." in approval:
        return api.get(f"/v1/approvals/{segment(approval)}")
    if approval == LATEST:
        return _latest(api)
    gates = api.get(f"/v1/runs/{segment(approval)}")["gates"]
    waiting = [gate for gate in gates if gate["status"] == "open"] or gates
    if not waiting:
        remedy = f"`signalbox runs show {approval}` shows what it does."
        raise Refused(f"Run {approval} has asked for no approval.", remedy, code="no_approval")
    if len(waiting) > 1:
        what = f"Run {approval} has {len(waiting)} approvals."
        raise Refused(what, "`signalbox approvals list` shows their ids; name one.", code="ambiguous")
    return waiting[0]


def _latest(api: Api) -> dict[str, Any]:
    found = api.get("/v1/approvals", limit=1)["approvals"]
    if not found:
        raise Refused("Nothing waits for a decision.", "`signalbox runs list` shows what runs do.", code="no_approval")
    return found[0]
