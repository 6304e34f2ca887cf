"""What the architecture tests look at: the product's Python files, and what they import."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("app.py", "shared", "functions", "infra", "workflows", "scripts")


def python_files(*places: str) -> Iterator[Path]:
    """Yield the product's Python files under ``places``, as paths relative to the root, sorted."""
    for place in places:
        path = ROOT / place
        found = [path] if path.is_file() else sorted(path.rglob("*.py"))
        yield from (each.relative_to(ROOT) for each in found)


@cache
def tree(path: Path) -> ast.Module:
    """Parse one file."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


def imports(path: Path, *, types: bool = True) -> set[str]:
    """Return the dotted names of everything that ``path`` imports, inside functions too.

    ``from a import b`` counts as ``a.b``. ``types`` False leaves out what is imported for type checking only.
    """
    found: set[str] = set()
    _collect(tree(path), path, found, types=types)
    return found


def _collect(node: ast.AST, path: Path, found: set[str], *, types: bool) -> None:
    if isinstance(node, ast.Import):
        found.update(name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, path)
        found.update(f"{base}.{name.name}" for name in node.names)
    elif isinstance(node, ast.If) and not types and "TYPE_CHECKING" in ast.dump(node.test):
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, path, found, types=types)


def _absolute(node: ast.ImportFrom, path: Path) -> str:
    if not node.level:
        return node.module or ""
    package = path.parent.parts[: len(path.parent.parts) - node.level + 1]
    return ".".join((*package, *filter(None, [node.module])))


def tracked() -> list[Path]:
    """Return the files that belong to the repository: tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a file, nested ones too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function's body, without docstring."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
