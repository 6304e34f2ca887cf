"""Reads a workflow file: YAML with positions, prompt files inlined, models validated; every fault at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, cast

from shared.definition.faults import validate
from shared.definition.salvage import Ghost, Ghosts, salvage
from shared.definition.yaml_tree import MAX_BYTES, MAX_FAULTS, Mark, Path, Tree, read
from shared.errors import DefinitionError, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.definition.models import Workflow

MAX_PROMPT_BYTES = 64 * 1024
"""A prompt file is at most 64 KiB."""
_FILE_FIELDS = ("prompt", "system")
_SCHEME = "file:"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A workflow with everything needed to say where a fault stands.

    ``files`` maps the names of inlined prompt files to their texts; ``inlined`` maps the path of a field to the name
    of the file that its text came from. ``folder`` is where prompts and tools are looked for. ``faults`` are those that
    reading found; then ``workflow`` is what was left without the faulty steps, and ``ghosts`` are these.
    """

    workflow: Workflow
    name: str
    source: str
    folder: FilePath
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    inlined: Mapping[Path, str] = field(default_factory=dict[Path, str])
    keys: Mapping[Path, Mark] = field(default_factory=dict[Path, Mark])
    values: Mapping[Path, Mark] = field(default_factory=dict[Path, Mark])
    faults: tuple[Finding, ...] = ()
    ghosts: Mapping[Path, Ghost] = field(default_factory=dict[Path, Ghost])

    def position(self, path: Path) -> tuple[int, int]:
        """Return line and column, from 1, of the field at ``path``, or of the nearest field above it."""
        mark = _mark(path, self.keys, self.values)
        return mark.line, mark.column

    def finding(self, rule: str, path: Path, message: str, remedy: str = "") -> Finding:
        """Return a finding about the field at ``path``."""
        line, column = self.position(path)
        return Finding(rule, _sentence(message), self.name, line, column, remedy)

    def finding_inside(self, rule: str, path: Path, place: tuple[str, int], told: tuple[str, str]) -> Finding:
        """Return a finding about ``offset`` in the text of the field at ``path``.

        ``place`` is (an expression standing in that text, offset in it); ``told`` is (message, remedy).
        """
        file = self.inlined.get(path)
        mark = self.values.get(path) or _mark(path, self.keys, self.values)
        text, base = (self.files[file], 0) if file else (self.source[mark.start : mark.end], mark.start)
        at = text.find(place[0])
        if at < 0:
            return self.finding(rule, path, *told)
        whole = self.files[file] if file else self.source
        line, column = _line_column(whole, base + at + place[1])
        return Finding(rule, _sentence(told[0]), file or self.name, line, column, told[1])


def load_file(path: FilePath | str, *, strict: bool = True) -> Loaded:
    """Load the workflow file at ``path``. Raises DefinitionError with every fault; see ``load_text`` for ``strict``."""
    path = FilePath(path)
    try:
        content = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b"\n" * (MAX_BYTES + 1)
    except OSError as error:
        raise DefinitionError((Finding("file", f"cannot read the file: {error.strerror}", str(path)),)) from None
    return load_text(_decode(content, str(path)), str(path), path.parent, strict=strict)


def load_text(text: str, name: str, folder: FilePath | str | None, *, strict: bool = True) -> Loaded:
    """Load a workflow from its text.

    Args:
        text: The file's text.
        name: What messages call the file.
        folder: Where ``file:`` prompts are looked for; with None they are refused.
        strict: False returns what is left without the faulty steps, so that the checks can say what else is wrong.

    Raises:
        DefinitionError: the file has faults, of which it carries every one. Without ``strict``: nothing is left of it.
    """
    tree = read(text, name)
    files = _inline(tree, FilePath(folder) if folder is not None else None, name)
    workflow, faults, more = validate(tree.data, MAX_FAULTS) if tree.data is not None else (None, [], 0)
    for path, message, remedy in (fault for fault in faults if not _is_below(fault[0], tree.broken)):
        mark = _mark(path, tree.keys, tree.values)
        tree.findings.append(Finding("schema", _sentence(message), name, mark.line, mark.column, remedy))
    found = capped(in_order(tree.findings, name), more)
    ghosts = Ghosts()
    if (workflow is None or found) and not strict and not more:
        workflow, ghosts = salvage(tree.data, [*tree.broken, *(path for path, _, _ in faults)])
    if workflow is None or (found and strict):
        raise DefinitionError(found)
    loaded = Loaded(workflow, name, text, FilePath(folder or "."), keys=tree.keys, values=tree.values)
    named = {path: file for path, (file, _) in files.items()}
    return replace(loaded, files=dict(files.values()), inlined=named, faults=found, ghosts=ghosts)


def in_order(findings: Iterable[Finding], name: str) -> tuple[Finding, ...]:
    """Return the findings without repetitions in the order of the file called ``name``, other files behind it."""
    found = dict.fromkeys(findings)
    return tuple(sorted(found, key=lambda one: (one.file != name, one.file, one.line, one.column, one.rule)))


def capped(findings: tuple[Finding, ...], more: int = 0) -> tuple[Finding, ...]:
    """Return the findings, or when there are too many the first errors and one finding that counts the others."""
    if len(findings) <= MAX_FAULTS and not more:
        return findings
    shown = [one for one in findings if one.severity == "error"][:MAX_FAULTS] or list(findings[:MAX_FAULTS])
    last = shown[-1]
    told = f"{more + len(findings) - len(shown):,} or more are not shown."
    return (*shown, replace(last, rule="more", message=told, remedy="Mend these first."))


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        finding = Finding("yaml", "the file is not UTF-8.", name, line, column, "Save it as UTF-8.")
        raise DefinitionError((finding,)) from None


def _inline(tree: Tree, folder: FilePath | None, name: str) -> dict[Path, tuple[str, str]]:
    """Replace ``file:...`` by the file's text in the tree's data; return (file, text) by path."""
    found: dict[Path, tuple[str, str]] = {}
    for path, step, key in list(_file_fields(tree.data)):
        try:
            file, text = _prompt(step[key].removeprefix(_SCHEME), folder)
        except ValueError as error:
            mark = tree.values[path]
            tree.findings.append(Finding("file", _sentence(str(error)), name, mark.line, mark.column))
        else:
            step[key] = text
            found[path] = (file, text)
    return found


def _file_fields(data: Any, at: Path = ()) -> Iterator[tuple[Path, dict[str, Any], str]]:
    steps = cast("dict[str, Any]", data).get("steps") if isinstance(data, dict) else None
    if not isinstance(steps, dict):
        return
    for step, body in cast("dict[str, Any]", steps).items():
        fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
        for key in _FILE_FIELDS:
            if isinstance(fields.get(key), str) and fields[key].startswith(_SCHEME):
                yield (*at, "steps", step, key), fields, key
        yield from _file_fields(fields, (*at, "steps", step))


def _prompt(relative: str, folder: FilePath | None) -> tuple[str, str]:
    """Return name and text of a prompt file inside ``folder``. Raises ValueError."""
    if folder is None:
        raise ValueError("prompt files cannot be used here; write the prompt into the workflow")
    root = folder.resolve()
    path = (root / relative).resolve()
    if not relative or not path.is_relative_to(root):
        raise ValueError(f"the prompt file `{relative}` lies outside the workflow's folder; move it inside")
    if not path.is_file():
        raise ValueError(f"the prompt file `{relative}` does not exist in {folder}")
    if path.stat().st_size > MAX_PROMPT_BYTES:
        raise ValueError(f"the prompt file `{relative}` is larger than {MAX_PROMPT_BYTES:,} bytes; shorten it")
    try:
        return str(folder / relative), path.read_bytes().decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the prompt file `{relative}` is not UTF-8; save it as UTF-8") from None


def _mark(path: Path, keys: Mapping[Path, Mark], values: Mapping[Path, Mark]) -> Mark:
    for length in range(len(path), -1, -1):
        found = keys.get(path[:length]) or values.get(path[:length])
        if found:
            return found
    return Mark(1, 1, 0, 0)


def _sentence(message: str) -> str:
    """Close a message with a full stop, since a remedy follows it."""
    return message if message.endswith((".", "?", "!")) else f"{message}."


def _is_below(path: Path, broken: set[Path]) -> bool:
    return any(path[: len(fault)] == fault for fault in broken)


def _line_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
