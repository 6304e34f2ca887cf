"""One local cloud for the whole folder, brought up by the command that users type."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "kills"))
sys.path.insert(1, str(Path(__file__).parents[1] / "property"))
sys.path.insert(1, str(Path(__file__).parents[1] / "flows"))

from deployed import ROOT, Deployed


@pytest.fixture(scope="session")
def shell(tmp_path_factory):
    """Run the CLI against a local cloud that belongs to this session alone."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ANTHROPIC_"))}
    variables |= {"SIGNALBOX_LOCAL_FOLDER": str(tmp_path_factory.mktemp("cloud")), "NO_COLOR": "1"}

    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "scripts" / "signalbox"), *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    yield run
    run("down", check=False)


@pytest.fixture(scope="session")
def deployed(shell) -> Deployed:
    found = json.loads(shell("up", "--json").stdout)
    return Deployed(**{name: found[name] for name in Deployed.__dataclass_fields__ if name in found})


@pytest.fixture(scope="session")
def browser():
    """Chromium of the machine, driven by Playwright."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium): browser tests are left out")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    quiet += ["--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=quiet)
        yield chromium
        chromium.close()
