"""The key of attestations as a file, for a store that is a file too: made once, readable by its owner only.

A new key is marked as such until what its store held before has been sealed by it. The mark stands here and not in the
store: who can edit that, but does not have the key, must not have anything sealed anew.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_BYTES = 32
_NEW = "new "
_FORM = re.compile(rf"({_NEW})?([0-9a-f]{{{2 * _BYTES}}})\s*")


class StoredKey(NamedTuple):
    """The key as text; ``is_new`` = what was there before it has not been sealed yet."""

    text: str
    is_new: bool


def key_in(path: Path) -> StoredKey:
    """Return the key in the file at ``path``, which is made when there is none. Raises OSError.

    Of several processes that make it at once, one does. It is on the disk before anything is signed by it. Raises
    ValueError for a file that holds anything else: a short key is as good as none.
    """
    if not path.exists():
        _write(path, _NEW + secrets.token_hex(_BYTES), new=True)
    found = _FORM.fullmatch(path.read_text(errors="replace"))
    if found is None:
        raise ValueError("it holds no key; put back the one that was there (without it, what ran before is foreign)")
    return StoredKey(found[2], found[1] is not None)


def in_use(path: Path, key: StoredKey) -> None:
    """Take the mark of a new key away: all that was there before is sealed. Raises OSError."""
    _write(path, key.text, new=False)


def _write(path: Path, text: str, *, new: bool) -> None:
    """Write the whole file beside its place first: nobody ever reads half a key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}-")
    try:
        with os.fdopen(number, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            (os.link if new else os.replace)(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
