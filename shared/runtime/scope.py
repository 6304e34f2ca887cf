"""The names that expressions see: ``input``, ``steps``, ``item``, ``loop``, ``run``, ``trigger``, from the records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.definition.expressions import evaluate, render
from shared.errors import PermanentFailure
from shared.runtime.memo import Memo
from shared.runtime.outputs import output_of
from shared.runtime.scopes import (
    FALLBACK,
    container_of,
    enclosing,
    frame_keys,
    graph_at,
    is_own,
    is_part,
    number_of,
    place_of,
    range_of,
    root_scope,
    scope_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shared.ledger.records import Step
    from shared.manifest import Manifest, Merge, StepPlan
    from shared.ports import Blobs
    from shared.runtime.journal import Snapshot

_STEP_NAME = re.compile(r"\bsteps\s*\.\s*([a-z][a-z0-9_]*)")
_LOOP = re.compile(r"\bloop\b")
_INPUTS = re.compile(r"\binputs\b")


def mentioned(*templates: Any) -> frozenset[str]:
    """Return the steps that any expression inside ``templates`` may refer to (a superset is harmless: it is read)."""
    return frozenset(name for text in _texts(templates) for name in _STEP_NAME.findall(text))


def inside_names(plan: StepPlan) -> frozenset[str]:
    """Return the steps that any expression in the body of a map or loop, or of a body inside it, may refer to."""
    return frozenset[str]().union(*(_words(each).steps for each in _all(plan)))


def keys_inside(manifest: Manifest, plan: StepPlan, scope: str) -> frozenset[str]:
    """Return the sort keys of what any expression of a map or loop, or inside it, may name outside."""
    places = {place_of(name, manifest, scope) for name in inside_names(plan)} - {None}
    before = _previous_keys(manifest, scope) if any(_words(each).loop for each in _all(plan)) else set[str]()
    return keys_for(manifest, plan, scope).union(before, (f"STEP#{place}" for place in places))


def _all(plan: StepPlan) -> Iterator[StepPlan]:
    """Yield a step and all inside it, the calls of an agent's tools included."""
    yield plan
    inside = [*(plan.body.steps.values() if plan.body else ()), *(plan.turns.tools.values() if plan.turns else ())]
    for step in inside:
        yield from _all(step)


def keys_for(manifest: Manifest, plan: StepPlan, scope: str) -> frozenset[str]:
    """Return the sort keys that deciding about a step needs.

    The run, the step, its sources and what its expressions mention, its gate, the containers around it.
    """
    return _KEYS.of(plan, scope, partial(_keys_for, manifest, plan, scope))


def _keys_for(manifest: Manifest, plan: StepPlan, scope: str) -> frozenset[str]:
    words = _words(plan)
    names = words.steps | {edge.source for edge in plan.needs}
    places = {place_of(name, manifest, scope) for name in names} - {None}
    keys = {"RUN", f"STEP#{scope}{plan.id}", *(f"STEP#{place}" for place in places), *frame_keys(scope)}
    if words.loop:
        keys |= _previous_keys(manifest, scope)
    return frozenset(keys | ({f"GATE#{scope}{plan.approved_by}"} if plan.approved_by else set()))


def _previous_keys(manifest: Manifest, scope: str) -> set[str]:
    before = _previous_scope(manifest, scope)
    return {f"STEP#{before}{name}" for name in graph_at(manifest, before)} if before else set()


def _previous_scope(manifest: Manifest, scope: str) -> str | None:
    """Return the scope of the iteration before the innermost loop's current one, if there is one."""
    for outer in reversed(enclosing(scope)[1:]):
        if _container(manifest, outer).type == "loop":
            number = number_of(outer)
            return f"{container_of(outer)}[{number - 1}]/" if number > 1 else None
    return None


def _container(manifest: Manifest, scope: str) -> StepPlan:
    path = container_of(scope)
    return graph_at(manifest, scope_of(path))[path.rpartition("/")[2]]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, Any]", value).values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)


def mentions_inputs(plan: StepPlan) -> bool:
    """Tell whether any of the step's own expressions reads ``inputs``."""
    return _words(plan).inputs


@dataclass(frozen=True, slots=True)
class _Words:
    """What a step's expressions mention: steps, ``loop``, ``inputs``."""

    steps: frozenset[str]
    loop: bool
    inputs: bool


_WORDS: Memo[_Words] = Memo()
_KEYS: Memo[frozenset[str]] = Memo()


def _words(plan: StepPlan) -> _Words:
    return _WORDS.of(plan, "", partial(_read, plan))


def _read(plan: StepPlan) -> _Words:
    own = [dict(plan.spec), plan.when]
    all_ = [own, [edge.when for edge in plan.needs]]
    return _Words(
        steps=mentioned(all_),
        loop=any(map(_LOOP.search, _texts(all_))),
        inputs=any(map(_INPUTS.search, _texts(own))),
    )


def merge(kind: Merge, outputs: Mapping[str, Any]) -> Any:
    """Merge upstream outputs, in the order of ``needs``. Raises PermanentFailure."""
    if kind == "by_step":
        return dict(outputs)
    values_ = list(outputs.values())
    if kind == "list":
        return values_
    if kind == "first":
        return values_[0] if values_ else None
    merged: dict[str, Any] = {}
    for name, output in outputs.items():
        if not isinstance(output, dict):
            raise PermanentFailure(f"The output of {name} is no object, so `merge: {kind}` cannot merge it.")
        given = cast("dict[str, Any]", output)
        merged = {**merged, **given} if kind == "shallow" else _deep(merged, given)
    return merged


def _deep(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for name, value in second.items():
        both = isinstance(merged.get(name), dict) and isinstance(value, dict)
        merged[name] = _deep(merged[name], cast("dict[str, Any]", value)) if both else value
    return merged


class _Names(Mapping[str, Any]):
    """Names of which each is made when it is read first: most expressions read one or two."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]], made: dict[str, Any]) -> None:
        self._makers, self._made = makers, made

    def __getitem__(self, name: str) -> Any:
        """Return a name's value. Raises KeyError."""
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names."""
        return iter({**self._makers, **self._made})

    def __len__(self) -> int:
        """Count the names."""
        return len({**self._makers, **self._made})


class Scope:
    """Names for the expressions of one step instance, from a snapshot that holds the records it mentions."""

    def __init__(self, seen: Snapshot, blobs: Blobs, manifest: Manifest, scope: str = "", **extra: Any) -> None:
        self._seen = seen
        self._blobs = blobs
        self._manifest = manifest
        self._scope = scope
        self._extra = extra
        self._names: Mapping[str, Any] | None = None

    @property
    def names(self) -> Mapping[str, Any]:
        """All names; made when the first expression is read, since most steps' conditions have none."""
        if self._names is None:
            makers = {"input": self._input, "steps": self._steps, "run": self._run, "trigger": self._trigger}
            surroundings = {**self._context.get("names", {}), **self._frames(self._scope)} if self._is_inside() else {}
            self._names = _Names(makers, {**surroundings, **self._extra})
        return self._names

    def _is_inside(self) -> bool:
        """Tell whether anything stands around the step's own graph."""
        return bool(self._scope) or self._seen.run.context is not None

    @cached_property
    def _context(self) -> Mapping[str, Any]:
        """What a part of a map or loop sees of its surroundings; a run of its own sees none."""
        return values.load(self._seen.run.context, self._blobs) or {}

    def _input(self) -> Any:
        return values.load(self._seen.run.input, self._blobs)

    def _run(self) -> dict[str, Any]:
        run = self._seen.run
        return {"id": run.id, "workflow": run.workflow, "version": run.version, "tenant": run.tenant}

    def _trigger(self) -> dict[str, Any]:
        run = self._seen.run
        return {"kind": run.trigger, "id": run.trigger_id, "occurrence": run.occurrence, "initiator": run.initiator}

    def _steps(self) -> dict[str, Any]:
        return {**self._context.get("steps", {}), **dict(self._own_steps())}

    def _own_steps(self) -> Iterator[tuple[str, dict[str, Any]]]:
        scopes = enclosing(self._scope)
        for step in self._seen.steps():
            if is_own(step.path, scope_of(step.path)) and scope_of(step.path) in scopes:
                yield step.path.rpartition("/")[2], self._shown(step)
            elif step.path.endswith(FALLBACK):
                yield from self._stand_in(step)

    def _stand_in(self, step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a fallback by its own name too: by that its compensation refers to what it did."""
        path = step.path.removesuffix(FALLBACK)
        scope = scope_of(path)
        plan = graph_at(self._manifest, scope).get(path.removeprefix(scope))
        template = plan.fallback if plan else None
        if template:
            yield template, self._shown(step)

    def _shown(self, step: Step) -> dict[str, Any]:
        failure = asdict(step.failure) if step.failure else None
        return {"output": output_of(step, self._blobs), "status": step.status, "error": failure}

    def _frames(self, scope: str) -> dict[str, Any]:
        """Return what maps and loops around the scope put into it; inner ones win."""
        names: dict[str, Any] = {}
        if not scope:
            return names
        outside = len(root_scope(self._seen.run))  # those around a part stand in its context
        for outer in (one for one in enclosing(scope)[1:] if len(one) > outside):
            plan = _container(self._manifest, outer)
            names.update(self._item(plan, outer) if plan.type == "map" else self._iteration(outer))
        return names

    def _item(self, plan: StepPlan, scope: str) -> dict[str, Any]:
        frozen = self._seen.step(container_of(scope))
        items: list[Any] = values.load(frozen.arguments if frozen else None, self._blobs) or []
        number = number_of(scope)
        at = number - (frozen.first if frozen else 0)
        item = items[at] if at < len(items) else None
        return {"item": item, "index": number, plan.spec.get("as") or "item": item}

    def _iteration(self, scope: str) -> dict[str, Any]:
        before = _previous_scope(self._manifest, scope)
        outputs = {
            step.path.removeprefix(before): output_of(step, self._blobs)
            for step in self._seen.steps()
            if before and is_own(step.path, before)
        }
        previous = outputs if before else None
        part = self._seen.run.part
        if part and is_part(part) and (container_of(scope), number_of(scope)) == range_of(part)[:2]:
            previous = self._context.get("previous")
        return {"loop": {"iteration": number_of(scope), "previous": previous}}

    def merging(self, kind: Merge, sources: tuple[str, ...]) -> Scope:
        """Return the scope with ``inputs``: the outputs of the active ``sources``, merged as the step asks for.

        Raises PermanentFailure when outputs that are no objects are to be merged into one.
        """
        outputs = {name: self.names["steps"][name]["output"] for name in sources}
        merged = copy(self)
        merged._names = {**self.names, "inputs": merge(kind, outputs)}  # noqa: SLF001 - a copy of our own
        return merged

    def evaluate(self, expression: str) -> Any:
        """Evaluate a bare expression. Raises PermanentFailure with the expression's position."""
        return evaluate(expression, self.names)

    def holds(self, condition: str | None) -> bool:
        """Tell whether a condition is true; no condition is."""
        return condition is None or self.evaluate(condition) is True

    def render(self, template: Any) -> Any:
        """Render every ``${...}`` inside a JSON template."""
        return render(template, self.names)
