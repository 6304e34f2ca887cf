"""Two emulators for the whole session: one with all corrections, one with none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local import processes
from scripts.local.corrections import NAMES
from tests.emulator.emulator import Emulator


def _emulator(folder: Path, *options: str) -> Iterator[Emulator]:
    emulator = Emulator(folder, *options)
    try:
        emulator.prepare()
        yield emulator
    finally:
        processes.end(emulator.process)


@pytest.fixture(scope="session")
def corrected(tmp_path_factory) -> Iterator[Emulator]:
    yield from _emulator(tmp_path_factory.mktemp("corrected"))


@pytest.fixture(scope="session")
def plain(tmp_path_factory) -> Iterator[Emulator]:
    options = [option for name in NAMES for option in ("--without", name)]
    yield from _emulator(tmp_path_factory.mktemp("plain"), *options)
