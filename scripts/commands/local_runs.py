"""Runs of this machine (`signalbox run FILE`) behind the client's interface: the API's endpoints, without a server."""

import getpass
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast
from urllib.parse import unquote

import typer

from scripts.commands.advice import remedy
from scripts.commands.client import Api, ApiRefused
from scripts.commands.output import ROOT, Refused

if TYPE_CHECKING:
    from shared.api.host import ApiHost
    from shared.errors import RequestRefused
    from shared.inprocess.workspace import Workspace
    from shared.ports import Engine

DEFAULT = ROOT / ".signalbox" / "runs.db"
ADMIN = "admin"

InProcessOption = Annotated[
    bool,
    typer.Option(
        "--in-process",
        help="Look at the runs of `signalbox run FILE`, kept in .signalbox/runs.db (SIGNALBOX_RUNS names another "
        "file). A run or approval that is named by its id is found there without this.",
    ),
]


def runs_file() -> Path:
    """Return the file that keeps in-process runs; another folder for the local cloud is one for these, too."""
    folder = os.environ.get("SIGNALBOX_LOCAL_FOLDER")
    return Path(os.environ.get("SIGNALBOX_RUNS") or (Path(folder) / "runs.db" if folder else DEFAULT))


def signature(name: str = "") -> str:
    """Return how a person at this machine stands in records; without a name, the user this process belongs to."""
    given = name.strip() or _user()
    return given if "@" in given else f"{given}@localhost"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id
        return "you"


def open_workspace() -> "Workspace":
    """Open the store of in-process runs. Raises Refused."""
    from shared.inprocess.workspace import Workspace  # noqa: PLC0415 - keeps `--help` fast
    from shared.ledger.sqlite import StoreUnusable  # noqa: PLC0415 - with it

    try:
        return Workspace(runs_file())
    except StoreUnusable as error:
        raise Refused(str(error), "SIGNALBOX_RUNS names another file.", code="store_unusable") from None


def find(run: str) -> "LocalRuns | None":
    """Return the in-process runs if this one is among them; ``run`` may be an approval's id too."""
    if not runs_file().is_file():
        return None
    from shared.errors import NotFound  # noqa: PLC0415 - as above

    workspace = open_workspace()
    try:
        workspace.facts(run.partition(".")[0])
    except NotFound:
        workspace.close()
        return None
    return LocalRuns(workspace)


class LocalRuns(Api):
    """Answers what the HTTP API answers, from a file.

    ``engine`` drives runs here; without one, another process does. ``check`` is called before every GET.
    """

    slowest: ClassVar[float] = 0.25

    def __init__(
        self,
        workspace: "Workspace",
        engine: "Engine | None" = None,
        by: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.workspace = workspace
        self._drives = engine is not None
        self._check = check
        self.by = signature(by)
        self._host = _api_host(workspace, engine)

    def get(self, path: str, **query: str | int | None) -> dict[str, Any]:
        """Answer a GET. Raises ApiRefused, and what ``check`` raises."""
        self._check()
        if path == "/v1/runs":
            self.workspace.refresh_lists()
        given = {name: str(value) for name, value in query.items() if value is not None}
        return self._answer("GET", path, given, b"", {})[1]

    def post(self, path: str, body: Mapping[str, Any], *, key: str | None = None) -> tuple[int, dict[str, Any]]:
        """Answer a POST. Raises ApiRefused."""
        headers = {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
        if path.endswith("/rebuild"):
            self.workspace.refresh_lists()
        return self._answer("POST", path, {}, json.dumps(dict(body)).encode(), headers)

    def undriven(self, run: str) -> bool:
        """Tell whether no process drives the run."""
        return self.workspace.locks.is_free(run)

    def stands_still(self, run: str) -> bool:
        """Tell whether the run has not ended and no process drives it, this one included."""
        return not self._drives and self.undriven(run) and not self.workspace.has_ended(run)

    def _answer(
        self, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        from shared.api.dispatch import find as find_route  # noqa: PLC0415 - keeps `--help` fast
        from shared.api.host import Call  # noqa: PLC0415 - with it
        from shared.api.web import Request  # noqa: PLC0415 - with it
        from shared.errors import RequestRefused  # noqa: PLC0415 - with it
        from shared.inprocess.workspace import TENANT  # noqa: PLC0415 - with it
        from shared.tenants.tokens import Principal  # noqa: PLC0415 - with it

        request = Request(method, unquote(path), headers, query, body)
        principal = Principal(TENANT, self.by, self.by, frozenset({ADMIN}))
        try:
            route, names = find_route(method, request.path)
            response = route.endpoint(self._host, Call(request, principal, names))
        except RequestRefused as refused:
            raise refused_here(refused, request.path) from None
        return response.status, cast("dict[str, Any]", json.loads(response.body))


def refused_here(refused: "RequestRefused", path: str) -> ApiRefused:
    """Return a refusal by this machine's runs, asked at `path`, with what to do about it."""
    told = remedy(refused.problem, path, here=True)
    return ApiRefused(refused.status, refused.detail, told, code=refused.problem)


def _api_host(workspace: "Workspace", engine: "Engine | None") -> "ApiHost":
    from shared.api.host import ApiHost  # noqa: PLC0415 - keeps `--help` fast
    from shared.inprocess.handlers import UNWIND  # noqa: PLC0415 - with it
    from shared.inprocess.workspace import Elsewhere  # noqa: PLC0415 - with it

    return ApiHost(
        **workspace.ports(engine or Elsewhere()),
        tokens=workspace.store,
        catalogue=workspace.store,
        start=_not_by_name,
        sweep=_not_swept,
        unwind_machine=UNWIND,
    )


def _not_swept(_asked: Mapping[str, Any]) -> Mapping[str, Any]:
    raise Refused(
        "In-process runs need no sweeper: whoever drives them does all that it would.",
        "`signalbox runs resume RUN` goes on with one that no process drives.",
    )


def _not_by_name(_payload: Mapping[str, Any]) -> Mapping[str, Any]:
    raise Refused("In-process runs are started from a file.", "signalbox run FILE --input JSON")
