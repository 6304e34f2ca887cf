"""`triggers list`: what starts runs by itself, and where; and what an author may try of a file's triggers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.commands import show
from scripts.commands.client import segment
from scripts.commands.output import JsonOption, Refused, print_json, table
from scripts.commands.target import TokenOption, UrlOption, target

if TYPE_CHECKING:
    from shared.manifest import Manifest
    from shared.runtime.host import Published
    from shared.runtime.runs import StartRequest

NEXT = 3
"""Times of a schedule to show."""

triggers = typer.Typer(help="What starts runs by itself.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.add_typer(triggers, name="triggers")


@triggers.command("list")
def list_(
    *,
    workflow: Annotated[str | None, typer.Argument(help="Only those of this workflow.", metavar="WORKFLOW")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what starts runs: addresses of webhooks, names of queues, patterns, the next times of schedules.

    signalbox triggers list

    signalbox triggers list invoice --json
    """
    api = target(url, token)
    names = [workflow] if workflow else [each["workflow"] for each in api.get("/v1/workflows")["workflows"]]
    found: list[dict[str, Any]] = [
        {"workflow": name, **each, "url": api.url + each["path"] if each["path"] else None, "next": _next(each)}
        for name in names
        for each in api.get(f"/v1/workflows/{segment(name)}").get("triggers", [])
    ]
    if as_json:
        return print_json({"triggers": found})
    rows = [(each["workflow"], each["id"], each["kind"], each["tenant"], show.escaped(_where(each))) for each in found]
    return table(("WORKFLOW", "TRIGGER", "KIND", "TENANT", "STARTS RUNS BY"), rows, empty="No triggers.")


def _next(trigger: Mapping[str, Any]) -> list[str]:
    if not trigger["cron"]:
        return []
    from shared.definition.cron import Cron  # noqa: PLC0415 - only schedules need it

    times = Cron.parse(trigger["cron"]).upcoming(trigger["timezone"], datetime.now(UTC), NEXT)
    return [one.strftime("%Y-%m-%dT%H:%M:%SZ") for one in times]


def _where(trigger: Mapping[str, Any]) -> str:
    match trigger["kind"]:
        case "webhook":
            return f"POST {trigger['url']}"
        case "schedule":
            when = ", ".join(trigger["next"]) or "never again"
            told = f"{trigger['cron']} {trigger['timezone']}: {when}"
            return told if trigger["active"] else f"{told} (on AWS: the local cloud has no schedules)"
        case _:
            return words(trigger["kind"], trigger)


def words(kind: str, spec: Mapping[str, Any]) -> str:
    """Return what happens for a trigger to start a run, in a few words."""
    import json  # noqa: PLC0415 - one use

    told = {
        "webhook": lambda: f"signed with the secret {spec['secret']}",
        "schedule": lambda: f"{spec['cron']} {spec['timezone']}",
        "event": lambda: json.dumps(spec["pattern"], ensure_ascii=False),
        "queue": lambda: f"queue {spec['queue']}",
    }
    return told[kind]()


def rehearsed(published: "Published", name: str, content: Any) -> "StartRequest":
    """Return the run that a trigger of a file would start for `content`, as if it had happened now. Raises Refused."""
    from shared.errors import RequestRefused  # noqa: PLC0415 - keeps `--help` fast
    from shared.ids import ulid  # noqa: PLC0415 - with it
    from shared.triggers.occurrences import GROUP, Occurrence  # noqa: PLC0415 - with it
    from shared.triggers.starting import asked  # noqa: PLC0415 - with it

    trigger = published.manifest.trigger(name)
    if trigger is None:
        known = ", ".join(one.id for one in published.manifest.triggers) or "none"
        raise Refused(f"{published.workflow} has no trigger {name}.", f"Its triggers: {known}.", code="unknown_trigger")
    now = datetime.now(UTC)
    time = {"time": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    seen: dict[str, dict[str, Any]] = {
        "webhook": {"body": content, "headers": {}},
        "schedule": time,
        "event": {"detail": content, "source": "local", "type": "local", **time},
        "queue": {"body": content, "attributes": {GROUP: "local"}},
    }
    id_ = ulid(int(now.timestamp() * 1000))
    try:
        return asked(published, Occurrence(published.workflow, name, trigger.kind, id_, seen[trigger.kind]))
    except RequestRefused as refused:
        remedy = "`--input` is what has happened: the body of a webhook or message, the detail of an event."
        raise Refused(refused.detail, remedy, code=refused.problem) from None


def of_manifest(manifest: "Manifest") -> list[dict[str, Any]]:
    """Return the triggers as `plan` tells them: where it will be deployed, a file does not say."""
    from shared.triggers.occurrences import queue_name  # noqa: PLC0415 - as above

    return [
        {"id": one.id, "kind": one.kind, "tenant": one.tenant, **one.spec}
        | ({"queue": queue_name("<env>", manifest.workflow, one.id)} if one.kind == "queue" else {})
        for one in manifest.triggers
    ]
