"""The runs' table as the deployment makes it, for stores on a DynamoDB that is played."""

from __future__ import annotations

from typing import Any

from shared.ledger.keys import INDEXES


def table(client: Any, name: str = "runs") -> None:
    """Make a table with the keys and indexes of the runs' one."""
    texts, numbers = zip(*INDEXES.values(), strict=True)
    names = {"pk": "S", "sk": "S"} | dict.fromkeys(texts, "S") | dict.fromkeys(numbers, "N")
    client.create_table(
        TableName=name,
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
