"""``sql.query``: one statement on an Aurora cluster through the RDS Data API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import UnclearAnswer
from shared.tools.aws import Aws
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.tools.means import Means

Parameters = dict[str, str | int | float | bool | None]


class Rows(TypedDict):
    """The rows of a SELECT by column; how many rows anything else has changed."""

    rows: list[dict[str, Any]]
    updated: int


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"sql.query": Sql(means).query}


class Sql:
    """Runs statements by these means. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "sql.query", "rds-data")

    def query(
        self,
        *,
        cluster_arn: Annotated[str, Doc("ARN of the Aurora cluster.")],
        secret_arn: Annotated[str, Doc("ARN of the secret with the database user's password.")],
        database: Annotated[str, Doc("Name of the database.")],
        sql: Annotated[str, Doc("One statement; `:name` stands for a parameter.")],
        parameters: Annotated[Parameters | None, Doc("Values of the parameters by name.")] = None,
        call: Call,
    ) -> Rows:
        """Run one SQL statement; values are parameters, `:name` in its text."""
        answer = self._aws.ask(
            "execute_statement",
            call,
            resourceArn=cluster_arn,
            secretArn=secret_arn,
            database=database,
            sql=sql,
            parameters=[{"name": name, "value": _field(value)} for name, value in (parameters or {}).items()],
            formatRecordsAs="JSON",
        )
        try:
            rows = json.loads(answer.get("formattedRecords") or "[]")
        except ValueError as error:
            raise UnclearAnswer(f"sql.query: the rows that came back are no JSON: {error}") from None
        return {"rows": rows, "updated": int(answer.get("numberOfRecordsUpdated", 0))}


def _field(value: str | float | bool | None) -> dict[str, Any]:  # noqa: FBT001 - a value
    match value:
        case None:
            return {"isNull": True}
        case bool():
            return {"booleanValue": value}
        case int():
            return {"longValue": value}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
