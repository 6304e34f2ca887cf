"""Every command of the README is run, in order, and what it says they print is what they print."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from scripts.cli import app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
SECONDS = 200

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@dataclass(frozen=True)
class Block:
    """A block of commands, and the output that the README shows for it."""

    line: int
    commands: str
    output: str = ""


def blocks(kind: str) -> list[Block]:
    found = re.finditer(rf"^```{kind}\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", README, re.MULTILINE | re.DOTALL)
    return [Block(README.count("\n", 0, one.start()) + 2, one[1], one[2] or "") for one in found]


def pattern(line: str) -> re.Pattern[str]:
    """Return what a shown line stands for: numbers, ids and spacing may differ."""
    words = (re.sub(r"\d[\d.,]*", r"[\\d.,]+", re.escape(word).replace(r"\.", ".")) for word in line.split())
    return re.compile(r"\s+".join(words))


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A shell in the clone with a local cloud of its own, which is ended afterwards."""
    private = {name for name in os.environ if name.startswith(("SIGNALBOX_", "AWS_", "ANTHROPIC_"))}
    variables = {name: value for name, value in os.environ.items() if name not in private}
    variables |= {"SIGNALBOX_LOCAL_FOLDER": str(tmp_path_factory.mktemp("local")), "NO_COLOR": "1"}

    def run(commands: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euo", "pipefail", "-c", commands]
        return subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    yield run
    run("./scripts/signalbox down")


@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: f"line {block.line}")
def test_commands_do_what_the_readme_says(clone, block: Block):
    if "curl" in block.commands and not shutil.which("curl"):
        pytest.skip("curl is not installed (Debian: apt-get install curl)")
    done = clone(block.commands)
    assert done.returncode == 0, f"{block.commands}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stdout + done.stderr
    rest = done.stdout
    for line in filter(str.strip, block.output.splitlines()):
        found = pattern(line).search(rest)
        assert found, f"the README shows {line!r}, which is not printed here:\n{done.stdout}"
        rest = rest[found.end() :]


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: f"line {block.line}")
def test_commands_that_are_not_run_here_exist(block: Block):
    for line in block.commands.splitlines():
        program, *arguments = shlex.split(line)
        assert os.access(ROOT / program, os.X_OK), f"{program} cannot be run"
        if program.endswith("signalbox"):
            name, *options = arguments
            command = typer.main.get_command(app).commands[name]
            command.make_context(name, options)


def test_the_readme_has_commands():
    assert len(blocks("sh")) > 5
    assert blocks("console")


@pytest.mark.parametrize("target", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_links_lead_somewhere(target: str):
    assert (ROOT / target).exists(), f"README.md links to {target}, which does not exist"
