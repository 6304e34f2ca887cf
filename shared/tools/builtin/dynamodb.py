"""``dynamodb.query``: items of a table or an index."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import PermanentFailure
from shared.tools.aws import Aws
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.tools.means import Means

MOST = 1_000
"""Items of one answer; DynamoDB itself ends a page at 1 MB."""


class Items(TypedDict):
    """What was found; ``more`` tells whether there is more than was read."""

    items: list[dict[str, Any]]
    count: int
    more: bool


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"dynamodb.query": Query(means).query}


class Query:
    """Queries by these means. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "dynamodb.query", "dynamodb")

    def query(  # noqa: PLR0913 - a query has these parts
        self,
        *,
        table: Annotated[str, Doc("Name or ARN of the table.")],
        key: Annotated[str, Doc("Key condition, such as `customer = :who AND placed >= :since`.")],
        values: Annotated[dict[str, Any], Doc("What `:name` stands for in the conditions, by name.")],
        names: Annotated[
            dict[str, str] | None, Doc("What `#name` stands for: attributes whose names are reserved words.")
        ] = None,
        index: Annotated[str | None, Doc("Index that is queried instead of the table.")] = None,
        filter: Annotated[str | None, Doc("Condition on other attributes, for items that were read.")] = None,  # noqa: A002 - the word of DynamoDB
        limit: Annotated[int, Doc("Items that are read at most, 1 to 1,000.")] = 100,
        newest_first: Annotated[bool, Doc("Whether the largest sort key comes first.")] = False,
        consistent: Annotated[
            bool, Doc("Whether what was written a moment ago is surely found; not for a global index.")
        ] = False,
        call: Call,
    ) -> Items:
        """Query items of a DynamoDB table by a key condition with `:values` and `#names`."""
        if not 1 <= limit <= MOST:
            raise PermanentFailure(f"dynamodb.query reads 1 to {MOST:,} items, not {limit:,}. Change `limit`.")
        answer = self._aws.ask(
            "query",
            call,
            TableName=table,
            IndexName=index,
            KeyConditionExpression=key,
            FilterExpression=filter,
            ExpressionAttributeValues={f":{name.lstrip(':')}": written(one) for name, one in values.items()},
            ExpressionAttributeNames={f"#{name.lstrip('#')}": one for name, one in names.items()} if names else None,
            Limit=limit,
            ScanIndexForward=not newest_first,
            ConsistentRead=consistent,
        )
        items = [{name: read(one) for name, one in item.items()} for item in answer.get("Items", [])]
        return {"items": items, "count": len(items), "more": bool(answer.get("LastEvaluatedKey"))}


def written(value: Any) -> dict[str, Any]:
    """Return JSON as an attribute."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": str(Decimal(str(value)))}
        case str():
            return {"S": value}
        case list():
            return {"L": [written(one) for one in cast("list[Any]", value)]}
        case _:
            return {"M": {name: written(one) for name, one in cast("dict[str, Any]", value).items()}}


def read(attribute: Mapping[str, Any]) -> Any:
    """Return an attribute as JSON: numbers as numbers, bytes as base64, sets as lists."""
    ((kind, value),) = attribute.items()
    match kind:
        case "N":
            return _number(value)
        case "NULL":
            return None
        case "B":
            return base64.b64encode(value).decode()
        case "L" | "SS" | "NS" | "BS":
            inner = kind[0] if kind != "L" else ""
            return [read({inner: one} if inner else one) for one in value]
        case "M":
            return {name: read(one) for name, one in value.items()}
        case _:
            return value


def _number(text: str) -> int | float:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else float(number)
