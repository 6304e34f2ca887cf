"""Whether a value fits a JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping


def fits(output: Any, schema: Mapping[str, Any] | None) -> str | None:
    """Return what keeps ``output`` from fitting ``schema``, or None when it fits."""
    if not schema:
        return None
    import jsonschema  # noqa: PLC0415 - 0.2 s that only steps with a schema pay

    library = cast("Any", jsonschema)
    error = library.exceptions.best_match(library.Draft202012Validator(schema).iter_errors(output))
    return None if error is None else f"{error.json_path}: {error.message}"[:500]
