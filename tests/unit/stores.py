"""A fixture with every store there is: what holds of one must hold of all."""

from __future__ import annotations

import boto3
import pytest
from moto import mock_aws

from shared.ledger.dynamodb import DynamoStore
from shared.ledger.sqlite import SqliteStore
from shared.testing import MemoryStore
from tests.tables import table


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def store(request, monkeypatch, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
        return
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "runs.db")
        yield made
        made.close()
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        table(client)
        yield DynamoStore(client, "runs")
