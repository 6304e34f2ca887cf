"""The key of attestations as a file, for a store that is a file too: made once, readable by its owner only."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

_BYTES = 32


def key_in(path: Path) -> str:
    """Return the secret in the file at ``path``, which is made when there is none. Raises OSError.

    Of several processes that make it at once, one does. It is on the disk before anything is signed by it. Raises
    ValueError for a file that holds less: a short key is as good as none.
    """
    if not path.exists():
        _make(path)
    key = path.read_text().strip()
    if len(key) < 2 * _BYTES:
        raise ValueError(
            "it holds no key; put back the one that was there, or delete it: what ran before is then foreign"
        )
    return key


def _make(path: Path) -> None:
    """Write the whole file beside its place first: nobody ever reads half a key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}-")
    try:
        with os.fdopen(number, "w") as file:
            file.write(secrets.token_hex(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
