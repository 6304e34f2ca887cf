"""Versions of workflow files that are run here: compiled, and kept with the files beside them that they name."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.commands.output import Refused
from scripts.commands.toolsettings import servers_told, tool_settings

if TYPE_CHECKING:
    from shared.compiler import Compiled
    from shared.inprocess.workspace import Workspace
    from shared.runtime.host import Published


def compiled(file: Path, settings: Mapping[str, str]) -> "Compiled":
    """Compile a file, which may name the MCP servers that tool settings tell of. Raises Refused."""
    from shared.compiler import compile_file  # noqa: PLC0415 - a second of imports
    from shared.errors import DefinitionError  # noqa: PLC0415 - with it

    if not file.is_file():
        what = f"{file} is a folder." if file.is_dir() else f"There is no file {file}."
        raise Refused(what, "Name a workflow file, such as workflows/invoice.yaml.", code="no_file")
    try:
        return compile_file(file, servers=servers_told(settings))
    except DefinitionError as error:
        told = "\n".join(str(finding) for finding in error.findings)
        raise Refused(told, "`signalbox validate` shows the same, one by one.", code="definition_refused") from None


def publish(
    workspace: "Workspace",
    made: "Compiled",
    file: Path,
    settings: Mapping[str, str],
    seen: frozenset[str] = frozenset(),
) -> "Published":
    """Keep the file as a version, and the files beside it that it names as sub-workflows. Raises Refused."""
    for name in sorted(_children(made.manifest.steps) - seen - {made.name}):
        beside = file.with_name(f"{name}.yaml")
        publish(workspace, compiled(beside, settings), beside, settings, seen | {made.name})
    return workspace.publish(made, file)


def _children(steps: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for plan in steps.values():
        if plan.type == "sub_workflow":
            found.add(str(plan.spec["workflow"]))
        if plan.body:
            found |= _children(plan.body.steps)
    return found


def newest(workspace: "Workspace", run: str) -> int:
    """Keep the file of a run as it stands, and return its version: the newest. Raises Refused."""
    file, side = Path(workspace.file_of(run)), workspace.side(run)
    settings = tool_settings() | dict(side.settings if side else {})
    made, workflow = compiled(file, settings), workspace.facts(run).workflow
    if made.name != workflow:
        what = f"{file} holds the workflow {made.name} by now; run {run} is one of {workflow}."
        raise Refused(what, "Without --version it goes on as it began.", code="another_workflow")
    return publish(workspace, made, file, settings).version
