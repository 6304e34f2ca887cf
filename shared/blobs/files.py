"""Blobs as files: ``TENANT/<tenant>/blobs/<sha-256>`` under one folder, written once per content."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from shared.errors import PermanentFailure
from shared.ports import Blobs


class FileBlobs(Blobs):
    """``folder`` is created with the first object; only its owner can read what is in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, tenant: str, digest: str, data: bytes) -> str:
        """Store ``data``, on the disk when this returns; nobody ever sees half of it. Again, nothing changes."""
        key = f"TENANT/{tenant}/blobs/{digest}"
        place = self._place(key)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(place, data)
        return key

    def get(self, key: str) -> bytes:
        """Return the content. Raises PermanentFailure when it is gone."""
        try:
            return self._place(key).read_bytes()
        except OSError as error:
            raise PermanentFailure(f"The stored object {self._folder / key} cannot be read: {error}.") from error

    def _place(self, key: str) -> Path:
        place = self._folder / key
        if ".." in place.parts:
            raise PermanentFailure(f"{key} is no key of a stored object.")
        return place


def _write(place: Path, data: bytes) -> None:
    """Write beside the place, flush, rename, and flush the folder that now knows the name."""
    number, name = tempfile.mkstemp(dir=place.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
