"""Reading what is given on the command line: JSON as it stands, from a file or from stdin, and single fields."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import typer


def read_input(text: str, fields: list[str]) -> dict[str, Any]:
    """Return the input that --input and --set give together. Raises BadParameter."""
    data = read_value(text, "--input")
    if not isinstance(data, dict):
        raise typer.BadParameter("the input must be a JSON object: {...}", param_hint="--input")
    made = cast("dict[str, Any]", data)
    for one in fields:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{one!r}: give KEY=VALUE or KEY=@FILE", param_hint="--set")
        made[name] = _content(value, f"--set {name}") if value.startswith("@") else value
    return made


def read_changes(text: str, fields: list[str]) -> dict[str, Any]:
    """Return the changes that --changes and --set give together. Raises BadParameter."""
    data = read_value(text, "--changes")
    made = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    for one in fields:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{one!r}: give KEY=VALUE", param_hint="--set")
        made[name] = json_or_text(value)
    if not made:
        raise typer.BadParameter("nothing is changed: give --set KEY=VALUE, or a JSON object", param_hint="--changes")
    return made


def json_or_text(text: str) -> Any:
    """Return the JSON value that a text is, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_value(text: str, hint: str) -> Any:
    """Return JSON that is given itself or as @FILE. Raises BadParameter."""
    return _json(_content(text, hint) if text.startswith("@") else text, hint)


def _content(reference: str, hint: str) -> str:
    name = reference.removeprefix("@")
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise typer.BadParameter(f"cannot read {name}: {why}", param_hint=hint) from None


def _json(text: str, hint: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        remedy = "Quote it in single quotes, or use @FILE" + (" or --set KEY=VALUE" if hint == "--input" else "")
        raise typer.BadParameter(f"not JSON: {error}. {remedy}", param_hint=hint) from None
