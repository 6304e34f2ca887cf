"""What is uploaded for the functions: their code, and on AWS a layer with what they import. No Docker needed."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-lambda.lock"
PYTHON = "3.13"
"""Python of the Lambda runtime. 3.11's image has a C library too old for some wheels."""

_FOLDERS = ("functions", "shared", "workflows/tools")
_DROPPED = frozenset({"__pycache__", "tests"})
_PLATFORMS = ("manylinux_2_28", "manylinux2014", "manylinux_2_17")


class PackagingError(RuntimeError):
    """Packaging failed; the message holds the tool's own."""


def code_files(root: Path = ROOT) -> tuple[Path, ...]:
    """Return the files of the functions' code, relative to ``root``, sorted."""
    found = (path for folder in _FOLDERS for path in _files(root / folder))
    return tuple(sorted(path.relative_to(root) for path in found))


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        inside = set(path.relative_to(folder).parts)
        if path.is_file() and path.suffix != ".md" and not inside & _DROPPED:
            yield path


def digest(paths: Iterable[Path], root: Path = ROOT) -> str:
    """Return a SHA-256 over the files' names and contents: equal code, equal asset, no new function version."""
    total = hashlib.sha256()
    for path in paths:
        content = (root / path).read_bytes()
        total.update(f"{path.as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def copy_code(target: Path, root: Path = ROOT) -> None:
    """Copy the functions' code to ``target``, without caches and tests."""
    for path in code_files(root):
        destination = target / path
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, destination)


def layer_digest(architecture: str) -> str:
    """Return what the layer depends on: its lock, the runtime's Python, the architecture."""
    return hashlib.sha256(f"{PYTHON}\0{architecture}\0".encode() + LOCK.read_bytes()).hexdigest()


def build_layer(target: Path, architecture: str) -> None:
    """Install the functions' dependencies for ``architecture`` (``aarch64`` or ``x86_64``) under ``target/python``.

    Only wheels, checked against the lock's hashes; nothing is built or run here.

    Raises:
        PackagingError: pip failed; the message holds its last lines.
    """
    # --no-deps: the lock is complete; boto3 comes with the runtime and is left out on purpose.
    command = [*_pip(), "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile"]
    command += ["--disable-pip-version-check", "--implementation=cp", f"--python-version={PYTHON}"]
    command += [f"--platform={platform}_{architecture}" for platform in _PLATFORMS]
    command += ["--target", str(target / "python"), "--requirement", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode:
        raise PackagingError(f"the functions' layer could not be built:\n{_tail(done.stderr or done.stdout)}")
    for useless in ("bin", "bazel-project"):  # the second is left in CEL's wheel by its own build
        shutil.rmtree(target / "python" / useless, ignore_errors=True)


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise PackagingError(f"{sys.executable} has no pip. Run ./scripts/setup, which installs it.")
    return [sys.executable, "-m", "pip"]


def _tail(text: str, lines: int = 30) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
