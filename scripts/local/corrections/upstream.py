"""How a correction reaches into the emulator: exact text replacement, refused when the text is not there."""

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

PINNED = "1.5.33"
_sources: dict[tuple[str, str], str] = {}
_wrapped: set[tuple[str, str]] = set()


class CorrectionError(RuntimeError):
    """The emulator is not the one the corrections were written for."""


def check_version() -> None:
    """Refuse any emulator but the pinned one.

    Raises:
        CorrectionError: When another version is installed.
    """
    found = importlib.metadata.version("ministack")
    if found != PINNED:
        raise CorrectionError(
            f"The corrections are written for ministack {PINNED}, found {found}: "
            "install requirements.lock, or run tests/emulator against the new version and update PINNED."
        )


def stepfunctions() -> Any:
    """The emulator's Step Functions service."""
    return importlib.import_module("ministack.services.stepfunctions")


def lambda_service() -> Any:
    """The emulator's Lambda service."""
    return importlib.import_module("ministack.services.lambda_svc")


def lambda_runtime() -> Any:
    """The emulator's pool of Lambda worker processes."""
    return importlib.import_module("ministack.core.lambda_runtime")


def expect(correction: str, where: str, *, holds: bool) -> None:
    """Refuse to go on when upstream is not what `correction` was written for.

    Raises:
        CorrectionError: When `holds` is false.
    """
    if not holds:
        raise CorrectionError(
            f"Correction {correction!r}: {where} is not what ministack {PINNED} had. "
            "Upstream may have fixed it: run tests/emulator, then remove or rewrite the correction."
        )


def changed(correction: str, where: str, text: str, *changes: tuple[str, str]) -> str:
    """`text` with every change made; each old part must occur exactly once.

    Raises:
        CorrectionError: When an old part is missing or not unique.
    """
    for old, new in changes:
        expect(correction, f"{where} (part {old.strip()[:60]!r})", holds=text.count(old) == 1)
        text = text.replace(old, new)
    return text


def rewrite(
    correction: str,
    module: ModuleType,
    function: str,
    *changes: tuple[str, str],
    names: Mapping[str, object] | None = None,
) -> None:
    """Recompile `module.function` with text changes, `names` being added to the module's globals first.

    Several corrections may change one function: each sees the text its predecessors left.

    Raises:
        CorrectionError: When the text is not there.
    """
    key = (module.__name__, function)
    expect(correction, f"{function} (rewritten after it was wrapped)", holds=key not in _wrapped)
    source = _sources.get(key) or inspect.getsource(getattr(module, function))
    source = changed(correction, f"{module.__name__}.{function}", source, *changes)
    vars(module).update(names or {})
    exec(compile(source, f"<{function}, corrected>", "exec"), vars(module))  # noqa: S102 - upstream's own text
    _sources[key] = source


def wrap(module: ModuleType, function: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace `module.function` by `around(module.function)`; no later correction may rewrite it."""
    _wrapped.add((module.__name__, function))
    setattr(module, function, around(getattr(module, function)))
