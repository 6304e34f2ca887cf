"""`tenants secrets`, against Secrets Manager (moto)."""

from __future__ import annotations

import json

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from scripts.cli import app
from scripts.commands import secrets
from scripts.commands.output import Refused
from shared.secretstore.aws import SecretsManager

VALUE = "tok-5f3a9c"


@pytest.fixture(autouse=True)
def account(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("secretsmanager")
        monkeypatch.setattr(secrets, "_client", lambda env: (client, env or "local"))
        yield client


def run(*arguments, given=""):
    return CliRunner().invoke(app, ["tenants", "secrets", *arguments], input=given, catch_exceptions=False)


def facts(*arguments, given=""):
    return json.loads(run(*arguments, "--json", given=given).stdout)


def test_a_secret_is_put_listed_changed_and_removed(account):
    kept = SecretsManager(account, "local")
    first = facts("put", "default", "token", given=f"{VALUE}\n")["version"]
    second = facts("put", "default", "token", given="another-value")["version"]
    assert [kept.value("default", "token", version) for version in (first, second)] == [VALUE, "another-value"]
    assert [one["secret"] for one in facts("list", "default")["secrets"]] == ["token"]
    assert facts("list", "other")["secrets"] == []
    assert facts("remove", "default", "token")["removed"]
    assert facts("list", "default")["secrets"] == []


def test_no_value_is_ever_shown():
    told = run("put", "default", "token", given=VALUE).output + run("list", "default").output
    assert "token" in told
    assert VALUE not in told


def test_what_cannot_be_kept_is_refused():
    with pytest.raises(Refused, match="fewer than 4"):
        run("put", "default", "token", given="abc")
    with pytest.raises(Refused, match="has no secret"):
        run("remove", "default", "token")
    assert CliRunner().invoke(app, ["tenants", "secrets", "put", "default", "a/b"], input=VALUE).exit_code == 2
