"""What earlier runs of the same file, with the same input, mean for a command that is to run it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scripts.commands.farside import Notes
from scripts.commands.output import Refused

if TYPE_CHECKING:
    from shared.inprocess.workspace import Workspace
    from shared.runtime.host import Published
    from shared.runtime.runs import StartRequest


@dataclass(frozen=True)
class Earlier:
    """The ``run`` that goes on instead of a new one, if there is one, and what to say of others."""

    run: str | None = None
    notes: Notes = field(default_factory=Notes)


def earlier_run(workspace: "Workspace", published: "Published", request: "StartRequest", *, new: bool) -> Earlier:
    """Return what is to go on, or to be told.

    Raises Refused where an interrupted run of another version has changed something outside: a new one would again.
    """
    from shared.inprocess.workspace import TENANT  # noqa: PLC0415 - keeps `--help` fast
    from shared.runtime.runs import started_by  # noqa: PLC0415 - with it
    from shared.values import digest  # noqa: PLC0415 - with it

    if request.key:
        known = started_by(workspace.store, TENANT, request.key)
        return Earlier(known if known and not workspace.has_ended(known) else None)
    if new:
        return Earlier()
    asked = digest(request.input)
    found = workspace.interrupted(published, asked)
    if found:
        return Earlier(found)
    notes, beside = _left_behind(workspace, published, asked), workspace.under_way(published, asked)
    if beside:
        notes["beside it"] = f"run {beside}, with the same input, under way in another process"
    return Earlier(notes=notes)


def _left_behind(workspace: "Workspace", published: "Published", asked: str) -> Notes:
    """Say which runs of other versions stand still. Raises Refused where one has changed something outside."""
    left = workspace.left_behind(published, asked)
    for run in left:
        if workspace.has_changed_something(run.id):
            what = (
                f"Run {run.id} of version {run.version}, with the same input, has not ended and has made calls that "
                f"change something; the file is version {published.version} by now."
            )
            remedy = f"`signalbox runs resume {run.id}` goes on with it as it began; --new starts another one."
            raise Refused(what, remedy, code="interrupted_otherwise")
    if not left:
        return {}
    told = f"run {left[0].id} of version {left[0].version}, with the same input; it has changed nothing outside"
    return {"not ended": f"{told} (signalbox runs resume {left[0].id} goes on with it)"}
