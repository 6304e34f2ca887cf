"""`tenants budget`: on this machine's store, without any cloud."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from scripts.cli import app
from scripts.commands.output import Refused


@pytest.fixture(autouse=True)
def runs_here(monkeypatch, tmp_path):
    monkeypatch.setenv("SIGNALBOX_RUNS", str(tmp_path / "runs.db"))


def run(*arguments):
    return CliRunner().invoke(app, ["tenants", "budget", *arguments, "--in-process"], catch_exceptions=False)


def facts(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def test_a_tenant_has_no_budget_until_one_is_set():
    assert facts("show", "local")["limits"] == {}
    assert "no budget" in run("show", "local").stdout


def test_limits_are_set_one_by_one_and_taken_away_again():
    assert facts("set", "local", "--usd", "12.5", "--active-time", "2h")["limits"] == {
        "usd": "12.50",
        "active_time": 7_200_000,
    }
    assert facts("set", "local", "--steps", "40", "--monthly")["left"]["steps"] == 40
    found = facts("set", "local", "--usd", "none")
    assert (found["limits"], found["monthly"]) == ({"steps": 40, "active_time": 7_200_000}, True)
    assert not facts("set", "local", "--total")["monthly"]


def test_a_budget_is_shown_to_people():
    told = run("set", "local", "--usd", "12.5").stdout
    assert "Budget of tenant local, in total" in told
    assert "$ 12.50" in told


@pytest.mark.parametrize(
    "wrong", [(), ("--usd", "a lot"), ("--usd", "-1"), ("--tokens", "1.5"), ("--active-time", "5")]
)
def test_what_cannot_be_a_limit_is_refused(wrong):
    assert CliRunner().invoke(app, ["tenants", "budget", "set", "local", *wrong, "--in-process"]).exit_code == 2


def test_in_process_there_is_one_tenant():
    with pytest.raises(Refused, match="belong to tenant local"):
        run("show", "acme")
