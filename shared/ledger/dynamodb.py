"""The store on DynamoDB: consistent batch reads and conditional transactions."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from shared.errors import StoreConflict, TransientFailure
from shared.ledger.attributes import decode_item, encode_item
from shared.ledger.keys import INDEXES
from shared.ports import Item, Key, Store, Write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BATCH = 100
_TRIES = 8
"""How often keys that DynamoDB leaves out of an answer, because it is throttled, are asked for."""
_PAUSE = 0.01
"""Seconds before they are asked for again, at most; twice as long each time."""
_LOST = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException", "TransactionConflictException"})


class DynamoStore(Store):
    """One table. ``client`` is a boto3 DynamoDB client; its own retries repeat lost answers safely, by revision."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the items that exist, read consistently; any number of keys.

        Raises TransientFailure when DynamoDB keeps leaving some out.
        """
        found: dict[Key, Item] = {}
        unique = sorted(set(keys))
        for start in range(0, len(unique), _BATCH):
            found.update(self._read_batch(unique[start : start + _BATCH]))
        return found

    def _read_batch(self, keys: list[Key]) -> Iterator[tuple[Key, Item]]:
        wanted = {self._table: {"Keys": [self._key(key) for key in keys], "ConsistentRead": True}}
        for tried in range(_TRIES):
            answer = self._client.batch_get_item(RequestItems=wanted)
            for raw in answer["Responses"].get(self._table, ()):
                item = decode_item(raw)
                yield Key(item["pk"], item["sk"]), item
            wanted = answer.get("UnprocessedKeys")
            if not wanted:
                return
            time.sleep(random.uniform(0, _PAUSE * 2**tried))  # noqa: S311 - no secret
        raise TransientFailure(f"DynamoDB throttles reads of {self._table}. Give the table more capacity, or wait.")

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Return the partition's items under ``prefix`` above ``after``, in order, read consistently."""
        low = max(prefix, f"{after}\x00" if after else prefix)
        request = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :low AND :high",
            "ExpressionAttributeNames": {"#pk": "pk", "#sk": "sk"},
            "ExpressionAttributeValues": {":pk": {"S": pk}, ":low": {"S": low}, ":high": {"S": prefix + "\uffff"}},
        }
        return self._pages(request, limit)

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Return an index's newest items for ``value``, newest first, older than the sort value ``before``."""
        partition, sort = INDEXES[name]
        names = {"#p": partition}
        values: dict[str, Any] = {":p": {"S": value}}
        condition = "#p = :p"
        if before:
            names["#s"], values[":before"] = sort, {"N": before}
            condition += " AND #s < :before"
        request = {
            "TableName": self._table,
            "IndexName": name,
            "ScanIndexForward": False,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        return self._pages(request, limit)

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none (at most 100). Raises StoreConflict when a condition does not hold."""
        puts = [self._put(write) for write in writes]
        try:
            if len(puts) == 1:
                self._client.put_item(**puts[0])
            else:
                self._client.transact_write_items(TransactItems=[{"Put": put} for put in puts])
        except ClientError as error:
            if error.response["Error"]["Code"] in _LOST and not _too_large(error):
                raise StoreConflict(str(error)) from error
            raise

    def _pages(self, request: dict[str, Any], limit: int) -> list[Item]:
        items: list[Item] = []
        while True:
            page = self._client.query(**request, **({"Limit": limit - len(items)} if limit else {}))
            items += [decode_item(raw) for raw in page["Items"]]
            if "LastEvaluatedKey" not in page or (limit and len(items) >= limit):
                return items
            request = {**request, "ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _put(self, write: Write) -> dict[str, Any]:
        item = {**write.item, "pk": write.key.pk, "sk": write.key.sk, "rev": (write.expected or 0) + 1}
        put: dict[str, Any] = {
            "TableName": self._table,
            "Item": encode_item(item),
            "ExpressionAttributeNames": {"#c": "pk" if write.expected is None else "rev"},
            "ConditionExpression": "attribute_not_exists(#c)" if write.expected is None else "#c = :rev",
        }
        if write.expected is not None:
            put["ExpressionAttributeValues"] = {":rev": {"N": str(write.expected)}}
        return put

    def _key(self, key: Key) -> dict[str, Any]:
        return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def _too_large(error: ClientError) -> bool:
    response = cast("dict[str, Any]", error.response)
    reasons: list[dict[str, Any]] = response.get("CancellationReasons", [])
    return any(reason.get("Code") in {"ValidationError", "ItemCollectionSizeLimitExceeded"} for reason in reasons)
