"""What stands beside the command line: every script explains itself and takes no option that it does not know."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path.relative_to(ROOT)
    for path in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]
    if path.is_file() and not path.suffix
)


def run(script, *arguments):
    return subprocess.run(
        [ROOT / script, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_every_script_explains_itself_instead_of_running(script):
    done = run(script, "--help")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 2
    assert "#!" not in done.stdout


@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if script.name not in {"test", "run"}], ids=str
)  # those pass on to pytest what they do not know
def test_an_unknown_option_is_refused(script):
    done = run(script, "--nonsense")
    assert done.returncode == 2
    assert "--nonsense" in done.stderr
    assert not done.stdout


def test_the_version_stands_in_one_place():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run("scripts/signalbox", "--version").stdout == f"signalbox {version}\n"
    assert json.loads((ROOT / "package.json").read_text())["version"] == version
