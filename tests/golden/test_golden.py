"""Every shape and rule of the compiler as text, and as two independent validators see it."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from statelint.linter import Linter

from shared.asl import render
from shared.compiler import compile_file, compile_manifest, unwind_machine
from shared.manifest import Edge, Limits, Manifest, StepPlan
from tests.golden.outline import outline

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CASES = sorted((HERE / "cases").glob("*.yaml"))


MODELS = frozenset({"claude-haiku-4-5"})


@cache
def compiled(case):
    return compile_file(case, models=MODELS).asl


@cache
def machines():
    shipped = {path.stem: compile_file(path).asl for path in sorted((ROOT / "workflows").glob("*.yaml"))}
    made = {"unwind machine": unwind_machine(), "lanes": compile_manifest(wide()).asl}
    return {path.stem: compiled(path) for path in CASES} | shipped | made


def wide():
    """A workflow that fits only because equal branches are written once."""
    needs = {"first": ()} | {f"s{index}": ("first",) for index in range(300)}
    needs |= {f"t{index}": (f"s{index}",) for index in range(300)} | {
        "last": tuple(f"t{index}" for index in range(300))
    }
    plans = {
        name: StepPlan(
            id=name,
            type="transform",
            needs=tuple(Edge(source) for source in sources),
            dependents=tuple(other for other, its in needs.items() if name in its),
            spec={"set": {"v": 1}},
        )
        for name, sources in needs.items()
    }
    return Manifest("wide", "", {}, Limits(), plans, tuple(plans))


def same_as_golden(path, text, request):
    if request.config.getoption("--golden-update", default=False):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path.name} is missing; write it with: pytest tests/golden --golden-update"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; if that is right: --golden-update"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_machine_is_the_reviewed_one(case, request):
    asl = compiled(case)
    same_as_golden(case.with_suffix(".txt"), outline(asl), request)
    same_as_golden(case.with_suffix(".asl.json"), render(asl, indent=2) + "\n", request)


def test_unwind_machine_is_the_reviewed_one(request):
    same_as_golden(HERE / "unwind.txt", outline(unwind_machine()), request)
    same_as_golden(HERE / "unwind.asl.json", render(unwind_machine(), indent=2) + "\n", request)


def test_equal_branches_are_written_once(request):
    same_as_golden(HERE / "lanes.txt", outline(compile_manifest(wide()).asl), request)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_compiling_again_gives_the_same_bytes(case):
    first, second = compile_file(case, models=MODELS), compile_file(case, models=MODELS)
    assert render(first.asl) == render(second.asl)
    assert first.hash == second.hash
    assert first.manifest.to_json() == second.manifest.to_json()


def test_statelint_accepts_every_machine():
    assert {name: Linter.validate(asl) for name, asl in machines().items()} == {name: [] for name in machines()}


def test_statelint_can_refuse():
    broken = unwind_machine()
    broken["States"]["wait"]["Next"] = "nowhere"
    assert Linter.validate(broken)


@pytest.fixture(scope="module")
def refuse():
    """What asl-validator says: one process for all machines of the session."""
    if not (ROOT / "node_modules" / "asl-validator").is_dir():
        pytest.skip("asl-validator is not installed: run npm ci")
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
    if node is None:
        pytest.skip("no node beside this Python nor on the path")

    def run(definitions):
        command = [node, str(HERE / "asl_validator" / "validate.cjs"), str(ROOT)]
        ended = subprocess.run(command, input=json.dumps(definitions), capture_output=True, text=True, check=True)
        return json.loads(ended.stdout)

    return run


def test_asl_validator_accepts_every_machine_and_can_refuse(refuse):
    broken = unwind_machine()
    broken["States"]["wait"]["Next"] = "nowhere"
    assert set(refuse(machines() | {"broken": broken})) == {"broken"}
