"""Environments of the CEL library that many expressions share: the first check in a new one costs as much as ten.

Outputs of steps are therefore no names of their own. An expression is checked with ``steps.a.output`` replaced by the
name of a variable that stands for its type, padded so that every column stays where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cel_expr_python import cel

from shared.definition.syntax import variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.definition.expressions import Reference
    from shared.definition.types import Shape, TypeSpace


@dataclass(frozen=True)
class Environments:
    """The environments of one workflow, by the names that are in scope."""

    space: TypeSpace
    _types: dict[Shape, str] = field(default_factory=dict[Any, str])
    _known: dict[tuple[tuple[str, Shape], ...], tuple[int, cel.Env]] = field(default_factory=dict[Any, Any])

    def get(self, names: Mapping[str, Shape]) -> cel.Env:
        """Return an environment with these names and a variable for every type asked for so far."""
        key = tuple(names.items())
        count, environment = self._known.get(key, (-1, None))
        if environment is None or count < len(self._types):
            types = {name: shape.cel() for name, shape in names.items()}
            types |= {variable: shape.cel() for shape, variable in self._types.items()}
            environment = cel.NewEnv(descriptor_pool=self.space.pool, variables=variables(types))
            self._known[key] = len(self._types), environment
        return environment

    def rewritten(self, expression: str, uses: Iterable[tuple[Reference, Shape]]) -> str | None:
        """Return the expression with each use of a step's field replaced; None when one is written unusually."""
        text = expression
        for used, shape in uses:
            whole = f"steps.{used.fields[0]}.{used.fields[1]}"
            end = used.offset + len(whole)
            if expression[used.offset : end] != whole or expression[end : end + 1].isidentifier():
                return None
            variable = self._types.setdefault(shape, f"Z{len(self._types)}")
            text = text[: used.offset] + variable.ljust(len(whole)) + text[end:]
        return text
