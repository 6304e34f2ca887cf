"""Tenants' secrets in AWS Secrets Manager (moto)."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from shared.errors import PermanentFailure, TransientFailure
from shared.secretstore.aws import FRESH, SecretsManager, secret_id

PLACE = secret_id("acme", "prod", "token")


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield boto3.client("secretsmanager")


def test_a_secret_stands_under_its_tenant():
    assert PLACE == "TENANT/acme/signalbox-prod/token"


def test_versions_stay_readable_after_a_rotation(client):
    now = [0.0]
    secrets = SecretsManager(client, "prod", lambda: now[0])
    first = client.create_secret(Name=PLACE, SecretString="one")["VersionId"]
    assert secrets.version("acme", "token") == first
    second = client.put_secret_value(SecretId=PLACE, SecretString="two")["VersionId"]
    assert secrets.version("acme", "token") == first, "asked again only when it may have changed"
    now[0] += FRESH
    assert secrets.version("acme", "token") == second
    assert [secrets.value("acme", "token", version) for version in (first, second)] == ["one", "two"]
    assert secrets.newest("acme", "token") == "two"


def test_another_tenant_and_another_environment_have_none(client):
    client.create_secret(Name=PLACE, SecretString="one")
    for tenant, environment in (("other", "prod"), ("acme", "dev")):
        with pytest.raises(PermanentFailure, match=f"signalbox tenants secrets put {tenant} token"):
            SecretsManager(client, environment).version(tenant, "token")


def test_a_secret_that_is_no_text_is_refused(client):
    version = client.create_secret(Name=PLACE, SecretBinary=b"x")["VersionId"]
    with pytest.raises(PermanentFailure, match="no text"):
        SecretsManager(client, "prod").value("acme", "token", version)


def test_a_throttled_question_leaves_no_doubt_about_the_call():
    class Throttling:
        def describe_secret(self, **_):
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "DescribeSecret")

    with pytest.raises(TransientFailure, match="slow down") as caught:
        SecretsManager(Throttling(), "prod").version("acme", "token")
    assert not caught.value.uncertain
