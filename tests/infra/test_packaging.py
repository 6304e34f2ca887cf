"""What is uploaded: our code without ballast, and a layer that fits the runtime and its limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra import packaging

LIMIT = 100_000_000


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("code")
    packaging.copy_code(target)
    return target


def test_the_code_holds_what_runs_and_nothing_else(code: Path):
    files = {path.relative_to(code) for path in code.rglob("*") if path.is_file()}
    assert {path.parts[0] for path in files} == {"functions", "shared", "workflows"}
    assert not [path for path in files if "__pycache__" in path.parts or path.suffix in {".md", ".pyc", ".yaml"}]
    assert Path("functions/publish/handler.py") in files


def test_the_digest_follows_content_and_names(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    first = packaging.digest([Path("a")], tmp_path)
    assert packaging.digest([Path("a")], tmp_path) == first
    (tmp_path / "a").write_text("2")
    second = packaging.digest([Path("a")], tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, packaging.digest([Path("b")], tmp_path)}) == 3


def test_the_packaged_code_imports_by_itself(code: Path):
    names = sorted(path.parent.name for path in code.glob("functions/*/handler.py"))
    imports = "; ".join(f"import functions.{name}.handler" for name in names)
    done = subprocess.run(
        [sys.executable, "-c", imports],
        cwd=code,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]


def test_a_layer_that_cannot_be_built_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lock = tmp_path / "requirements-lambda.lock"
    lock.write_text("jinja2==3.1.6 --hash=sha256:" + "0" * 64 + "\n")
    monkeypatch.setattr(packaging, "LOCK", lock)
    with pytest.raises(packaging.PackagingError, match="layer could not be built"):
        packaging.build_layer(tmp_path / "out", "aarch64")


@pytest.mark.slow
def test_the_layer_is_built_for_arm_and_fits(tmp_path: Path):
    packaging.build_layer(tmp_path, "aarch64")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LIMIT
    libraries = [path.name for path in files if path.suffix == ".so"]
    assert libraries
    # An "abi3" library is named for no Python; none may be named for another machine or Python.
    assert not [
        name for name in libraries if "x86_64" in name or ("cpython" in name and "cpython-313-aarch64" not in name)
    ]
    top = {path.name for path in (tmp_path / "python").iterdir()}
    wanted = {
        "anthropic",
        "aws_lambda_powertools",
        "cel_expr_python",
        "google",
        "jinja2",
        "jsonschema",
        "pydantic",
        "rfc8785",
    }
    assert wanted <= top
    assert not {"boto3", "botocore", "aws_cdk", "bin"} & top
    assert not [path for path in files if path.suffix == ".pyc"]
