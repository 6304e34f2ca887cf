"""Tools: plain typed Python functions that workflows call, found in a folder and described by their own signatures.

Only checks derive JSON Schemas (with pydantic); loading and calling a tool at run time stays light.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import typing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from shared.errors import BrokenTool, PermanentFailure, SignalboxError, StepFailure
from shared.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

_MARK = "__signalbox_tool__"
_NANO = 1_000_000_000
_CALL = "call"
F = TypeVar("F", bound="Callable[..., Any]")


class ToolError(SignalboxError):
    """A tool module cannot be used: it does not import, or its tools are declared wrongly. Says which and why."""


@frozen
class Call:
    """What a tool may know about its call. ``timeout`` is in seconds; ``attempt`` counts from 1.

    ``idempotency_key`` is the same for every attempt of one effect: pass it on where the far side takes one.
    ``settings`` are the deployment's values for tools, such as ``ERP_URL``.
    """

    idempotency_key: str
    tenant: str
    run_id: str
    path: str
    attempt: int = 1
    timeout: float = 60.0
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Tool:
    """One tool. ``cost`` is what a call costs at most, in nano-USD."""

    name: str
    function: Callable[..., Any]
    cost: int = 0

    @cached_property
    def wants_call(self) -> bool:
        """Whether the function takes the keyword-only ``call``."""
        parameter = inspect.signature(self.function).parameters.get(_CALL)
        return parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments: an object with one property a parameter. Raises ToolError."""
        hints = self._hints()
        given = {name: one for name, one in inspect.signature(self.function).parameters.items() if name != _CALL}
        required = [name for name, one in given.items() if one.default is inspect.Parameter.empty]
        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        for name in given:
            schema = _schema(hints[name])
            definitions.update(schema.pop("$defs", {}))
            properties[name] = {**schema, **_told(hints[name])}
        described = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {**described, "$defs": definitions} if definitions else described

    @cached_property
    def returns(self) -> Mapping[str, Any]:
        """JSON Schema of the result. Raises ToolError."""
        return _schema(self._hints()["return"], mode="serialization")

    @property
    def description(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self.function) or ""

    def _hints(self) -> dict[str, Any]:
        try:
            hints = typing.get_type_hints(self.function, include_extras=True)
        except NameError as error:
            told = f"tool `{self.name}`: {error}; import what its annotations name outside `if TYPE_CHECKING:`"
            raise ToolError(told) from error
        for name in (*inspect.signature(self.function).parameters, "return"):
            if name not in hints:
                raise ToolError(f"tool `{self.name}`: annotate `{name}`; checks need its type")
        return hints


@typing.overload
def tool(function: F, /) -> F: ...


@typing.overload
def tool(*, cost: str = "0") -> Callable[[F], F]: ...


def tool(function: F | None = None, /, *, cost: str = "0") -> F | Callable[[F], F]:
    """Mark a function as a tool; ``cost`` is what one call costs at most, in USD.

    The function's name is the tool's. A keyword-only parameter ``call: Call`` is filled in and is not an argument.
    """

    def mark(marked: F) -> F:
        setattr(marked, _MARK, int(Decimal(cost) * _NANO))
        return marked

    return mark if function is None else mark(function)


def load_tools(folder: Path) -> Mapping[str, Tool]:
    """Import every module in ``folder`` and return its tools by name; a missing folder has none.

    Files that begin with ``_`` are helpers and are not searched. Raises ToolError.
    """
    found: dict[str, Tool] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_"):
            continue
        for one in _tools_in(_import(path)):
            if one.name in found:
                raise ToolError(f"{path}: the tool `{one.name}` exists twice; rename one")
            found[one.name] = one
    return found


def invoke(called: Tool, arguments: Mapping[str, Any], call: Call) -> Any:
    """Call a tool and return its result, which is JSON.

    Raises StepFailure subclasses: the tool's own, BrokenTool for anything else it raises and for a result that is not
    JSON, PermanentFailure for arguments that do not fit its signature.
    """
    extra = {_CALL: call} if called.wants_call else {}
    try:
        inspect.signature(called.function).bind(**arguments, **extra)
    except TypeError as error:
        raise PermanentFailure(f"`{called.name}` cannot take these arguments: {error}") from None
    try:
        result = called.function(**arguments, **extra)
    except StepFailure:
        raise
    except Exception as error:  # the boundary to foreign code: whatever it raises becomes a failure of the step
        raise BrokenTool(f"`{called.name}` failed: {type(error).__name__}: {error}") from error
    return _json(result, called.name)


def _json(result: Any, name: str) -> Any:
    try:
        return json.loads(json.dumps(result, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BrokenTool(f"`{name}` returned what is not JSON: {error}") from error


def _tools_in(module: ModuleType) -> Iterator[Tool]:
    for value in vars(module).values():
        cost = getattr(value, _MARK, None)
        if inspect.isfunction(value) and cost is not None and value.__module__ == module.__name__:
            if not value.__name__.isidentifier():
                raise ToolError(f"{module.__file__}: the tool `{value.__name__}` has a name that no function can have")
            yield Tool(value.__name__, value, cost)


def _import(path: Path) -> ModuleType:
    """Import one file under a name of its own, once a process."""
    name = f"signalbox_tools.{path.resolve().as_posix().replace('/', '_').replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ToolError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ToolError(f"{path}: importing it failed: {type(error).__name__}: {error}") from error
    return module


def _told(hint: Any) -> dict[str, str]:
    """Return what an annotation says of its parameter: ``Annotated[str, Doc("...")]``, which loads no pydantic."""
    from typing_extensions import Doc  # noqa: PLC0415 - only checks derive schemas

    texts = [one.documentation for one in getattr(hint, "__metadata__", ()) if isinstance(one, Doc)]
    return {"description": texts[-1]} if texts else {}


def _schema(hint: Any, mode: typing.Literal["validation", "serialization"] = "validation") -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only checks derive schemas; handlers must not load pydantic

    try:
        return TypeAdapter(hint).json_schema(mode=mode)
    except Exception as error:
        raise ToolError(f"`{hint}` has no JSON Schema: {error}") from error
