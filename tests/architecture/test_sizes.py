"""Small files, small functions, smaller handlers."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from tests.architecture.sources import PRODUCT, ROOT, body_lines, functions, python_files

if TYPE_CHECKING:
    from pathlib import Path

HANDLERS = [path for path in python_files("functions") if path.name == "handler.py"]


def lines(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("path", HANDLERS, ids=str)
def test_handlers_parse_call_once_and_return(path: Path):
    assert lines(path) <= 40, f"{path} has {lines(path)} lines: move what is not parsing into shared"


def test_files_are_short():
    files = (*python_files(*PRODUCT), *python_files("tests"))
    long = {str(path): lines(path) for path in files if lines(path) > 400}
    assert not long, f"files above 400 lines: {long}"


def test_functions_are_short():
    sizes = [body_lines(each) for path in python_files("shared", "functions", "infra") for each in functions(path)]
    median, p90 = statistics.median(sizes), statistics.quantiles(sizes, n=10)[-1]
    assert median <= 7, f"median function body: {median} lines"
    assert p90 <= 25, f"nine of ten function bodies have up to {p90} lines"
