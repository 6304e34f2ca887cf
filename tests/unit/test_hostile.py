"""Hostile definitions are refused in less than a second and 256 MB, with a place and, mostly, a remedy."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from shared.definition.loader import load_file
from shared.errors import DefinitionError

HERE = Path(__file__).parent
_SPEC = importlib.util.spec_from_file_location("hostile", HERE / "hostile.py")
hostile = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hostile)
SECONDS = 1.0
MEGABYTES = 256


@pytest.fixture(scope="module")
def results():
    done = subprocess.run(
        [sys.executable, str(HERE / "hostile.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parents[1],
        env={"PYTHONPATH": str(HERE.parents[1])},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def allowed(results):
    """Return a second of an idle machine, in seconds of this one: it may be busy with other tests."""
    return SECONDS * max(1.0, results["unit"] / 0.1)


@pytest.mark.parametrize("name", hostile.FILES)
def test_a_hostile_file_is_refused_in_time_with_a_place(results, name):
    found = results["files"][name]
    assert found["errors"] >= 1
    line, column, message, _ = found["first"]
    assert line >= 1
    assert column >= 1
    assert message
    assert found["seconds"] < allowed(results)
    assert found["longest"] < 5_000


@pytest.mark.parametrize("name", hostile.EXPRESSIONS)
def test_a_hostile_expression_fails_in_time(results, name):
    found = results["expressions"][name]
    assert found.get("told") or found["value"] < 10_000
    assert found["seconds"] < allowed(results)


def test_none_needs_much_memory(results):
    all_of_them = [*results["files"].values(), *results["expressions"].values()]
    assert max(one["megabytes"] for one in all_of_them) - results["before"] < MEGABYTES


def test_the_list_of_faults_is_capped_and_says_how_many_more(results):
    for name in ("2,000 steps with five faults", "2,000 unknown names", "1,500 wrong expressions"):
        found = results["files"][name]
        assert found["errors"] == 101
        assert "or more are not shown" in found["last"]


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    for number, content in enumerate((b"\xff\xfe" + "workflow: a".encode("utf-16-le"), b"\x80" * 900_000)):
        file = tmp_path / f"{number}.yaml"
        file.write_bytes(content)
        with pytest.raises(DefinitionError, match="not UTF-8"):
            load_file(file)
