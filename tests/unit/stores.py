"""A fixture with every store there is: what holds of one must hold of all."""

from __future__ import annotations

import boto3
import pytest
from moto import mock_aws

from shared.ledger.dynamodb import DynamoStore
from shared.ledger.keys import INDEXES
from shared.ledger.sqlite import SqliteStore
from shared.testing import MemoryStore


def table(client):
    texts, numbers = zip(*INDEXES.values(), strict=True)
    names = {"pk": "S", "sk": "S"} | dict.fromkeys(texts, "S") | dict.fromkeys(numbers, "N")
    client.create_table(
        TableName="runs",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in names.items()],
        GlobalSecondaryIndexes=[
            {
                "IndexName": index,
                "KeySchema": [
                    {"AttributeName": key, "KeyType": "HASH"},
                    {"AttributeName": sort, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
            for index, (key, sort) in INDEXES.items()
        ],
    )


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
