"""Which API a command talks to: options, else the environment, else the local cloud of this clone."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from scripts.commands.client import Api
from scripts.commands.local_runs import LocalRuns, find, open_workspace, runs_file
from scripts.commands.output import ROOT, Refused

FOLDER = Path(os.environ.get("SIGNALBOX_LOCAL_FOLDER") or ROOT / ".signalbox" / "local")
"""Where the local cloud keeps its state and logs. With another folder, another local cloud can run besides."""
CREDENTIALS = FOLDER / "credentials.json"
"""Where `up` leaves addresses and token of the local cloud, readable by the user only."""
LATEST = "latest"

RunArgument = Annotated[str, typer.Argument(help="The run's id, or `latest`.", metavar="RUN")]
UrlOption = Annotated[str | None, typer.Option("--url", envvar="SIGNALBOX_URL", help="Address of the API.")]
TokenOption = Annotated[str | None, typer.Option("--token", envvar="SIGNALBOX_TOKEN", help="Bearer token.")]


def credentials(path: Path = CREDENTIALS) -> dict[str, Any] | None:
    """Return what `up` left behind; None when there is no local cloud."""
    try:
        return cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
    except (OSError, ValueError):
        return None


def save_credentials(data: dict[str, Any], path: Path = CREDENTIALS) -> None:
    """Keep addresses and token, readable by the user only from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2)
    fresh.replace(path)


def target(
    url: str | None, token: str | None, path: Path = CREDENTIALS, *, in_process: bool = False, about: str = LATEST
) -> Api:
    """Return the API to talk to. The local token goes to the local address only. Raises Refused.

    ``in_process`` asks for the runs of `signalbox run FILE`; so does a run or approval ``about`` which is one of them,
    and, where no API is named and no local cloud is up, anything.
    """
    own = (
        None
        if url and not in_process
        else _in_process(about, always=in_process or (not url and credentials(path) is None))
    )
    if own is not None:
        return own
    if in_process:
        raise _no_runs()
    if url and token:
        return Api(url, token)
    if url:
        raise Refused("There is no token for that address.", "Give --token or set SIGNALBOX_TOKEN.", code="no_token")
    local = credentials(path)
    if local is None:
        remedy = (
            "Run `signalbox up` for a local cloud, or name one: --url and --token, SIGNALBOX_URL and SIGNALBOX_TOKEN."
        )
        raise Refused("There is no local cloud, and no other API was named.", remedy, code="no_target")
    return Api(str(local["api_url"]), token or str(local["token"]))


def _in_process(about: str, *, always: bool) -> Api | None:
    if always and runs_file().is_file():
        return LocalRuns(open_workspace())
    return find(about) if about != LATEST else None


def _no_runs() -> Refused:
    what = f"There are no in-process runs: {runs_file()} does not exist."
    return Refused(what, "`signalbox run FILE` makes some; SIGNALBOX_RUNS names another file.", code="no_runs")


def run_id(api: Api, run: str) -> str:
    """Return the run's id; `latest` is the newest run. Raises Refused."""
    if run != LATEST:
        return run
    found = api.get("/v1/runs", limit=1)["runs"]
    if not found:
        raise Refused("There is no run yet.", "Start one: signalbox run invoice --help", code="no_run")
    return str(found[0]["id"])
