"""`validate`: workflow files, without any cloud."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.commands.output import JsonOption, console, print_json
from scripts.commands.toolsettings import servers_told, tool_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.compiler import Compiled
    from shared.errors import Finding


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(validate)


def validate(
    *,
    files: Annotated[list[Path], typer.Argument(help="Workflow files, or folders with some.", metavar="FILE...")],
    as_json: JsonOption = False,
) -> None:
    """Check workflow files, all faults at once.

    Each fault comes with file, line, column and remedy.

    signalbox validate workflows/*.yaml
    """
    checked = {str(file): _checked(file) for file in _inside(files)}
    refused = {file for file, (compiled, _) in checked.items() if compiled is None}
    if as_json:
        print_json({"files": [_verdict(file, *result) for file, result in checked.items()]})
    else:
        for file, (compiled, findings) in checked.items():
            _tell(file, compiled, findings)
    raise typer.Exit(1 if refused else 0)


def _inside(files: list[Path]) -> list[Path]:
    found: list[Path] = []
    for file in files:
        inside = sorted(file.glob("*.yaml")) if file.is_dir() else [file]
        if not inside:
            raise typer.BadParameter(f"there is no *.yaml in {file}", param_hint="FILE...")
        found += inside
    return found


def _checked(file: Path) -> "tuple[Compiled | None, Sequence[Finding]]":
    from shared.compiler import compile_file  # noqa: PLC0415 - a second of imports
    from shared.errors import DefinitionError  # noqa: PLC0415 - with it

    try:
        compiled = compile_file(file, servers=servers_told(tool_settings()))
    except DefinitionError as error:
        return None, error.findings
    return compiled, compiled.findings


def _verdict(file: str, compiled: "Compiled | None", findings: "Sequence[Finding]") -> dict[str, Any]:
    return {
        "file": file,
        "valid": compiled is not None,
        "workflow": compiled.name if compiled else None,
        "hash": compiled.hash if compiled else None,
        "findings": [asdict(finding) for finding in findings],
    }


def _tell(file: str, compiled: "Compiled | None", findings: "Sequence[Finding]") -> None:
    screen = console()
    for finding in findings:
        colour = "red" if finding.severity == "error" else "yellow"
        place = f"{finding.file}:{finding.line}:{finding.column}"
        screen.print(f"{place}: [{colour}]{finding.severity}[/]: ", end="", soft_wrap=True)
        screen.print(f"{finding.message} [{finding.rule}]", markup=False, soft_wrap=True)
        if finding.remedy:
            screen.print(f"    {finding.remedy}", markup=False, soft_wrap=True, style="dim")
    if compiled:
        screen.print(f"[green]✓[/] {file}: workflow {compiled.name}, {compiled.summary.steps} steps", soft_wrap=True)
    else:
        count = sum(finding.severity == "error" for finding in findings)
        screen.print(f"[red]✗[/] {file}: {count} error{'s' if count != 1 else ''}", soft_wrap=True)
