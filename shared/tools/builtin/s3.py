"""``s3.get`` and ``s3.put``: objects of the account's buckets."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import PermanentFailure
from shared.tools.aws import Aws, Refused, classified
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.tools.means import Means

LARGEST = 8 * 1024 * 1024
"""Bytes of an object that is read or written."""
Read = Literal["auto", "json", "text", "base64", "nothing"]
_KEY = "idempotency-key"


class Object(TypedDict):
    """An object with its content; ``body`` is null where nothing was to be read."""

    bucket: str
    key: str
    version: str
    etag: str
    size: int
    content_type: str
    body: Any


class Written(TypedDict):
    """Where an object is now."""

    bucket: str
    key: str
    version: str
    etag: str


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"s3.get": Get(means).get, "s3.put": Put(means).put}


class Get:
    """Reads objects. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "s3.get", "s3")

    def get(
        self,
        *,
        bucket: Annotated[str, Doc("Name of the bucket.")],
        key: Annotated[str, Doc("Key of the object.")],
        version: Annotated[str | None, Doc("Version of the object; without it, the newest.")] = None,
        read: Annotated[Read, Doc("How the content is read; `auto` is JSON where it says so, else text.")] = "auto",
        call: Call,
    ) -> Object:
        """Read an object of a bucket: JSON as data, text as text."""
        where = {"Bucket": bucket, "Key": key, "VersionId": version}
        answer = self._aws.ask("head_object" if read == "nothing" else "get_object", call, **where)
        size, kind = int(answer["ContentLength"]), str(answer.get("ContentType", ""))
        body = None if read == "nothing" else _read(f"{bucket}/{key}", _content(answer, size), kind, read)
        return {
            "bucket": bucket,
            "key": key,
            "version": str(answer.get("VersionId", "")),
            "etag": str(answer.get("ETag", "")).strip('"'),
            "size": size,
            "content_type": kind,
            "body": body,
        }


def _content(answer: dict[str, Any], size: int) -> bytes:
    if size > LARGEST:
        told = f"The object has {size:,} bytes; at most {LARGEST:,} are read."
        raise PermanentFailure(f"{told} With `read: nothing` the step returns only where it is.")
    with classified("s3.get"):
        return answer["Body"].read(LARGEST)


def _read(place: str, content: bytes, kind: str, read: Read) -> Any:
    if read == "base64":
        return base64.b64encode(content).decode()
    is_json = kind.partition(";")[0].strip().lower().endswith("json") or place.endswith(".json")
    try:
        if read == "json" or (read == "auto" and is_json):
            return json.loads(content)
        return content.decode()
    except (ValueError, RecursionError) as error:
        what = "JSON" if not isinstance(error, UnicodeDecodeError) else "text"
        remedy = "Say `read: text`, `base64` or `nothing`."
        raise PermanentFailure(f"The object {place} cannot be read as {what}: {error}. {remedy}") from None


class Put:
    """Writes objects. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "s3.put", "s3")

    def put(
        self,
        *,
        bucket: Annotated[str, Doc("Name of the bucket.")],
        key: Annotated[str, Doc("Key of the object.")],
        body: Annotated[Any, Doc("The content: text as it is, everything else as JSON.")],
        content_type: Annotated[str | None, Doc("What it is; without it, JSON or text.")] = None,
        overwrite: Annotated[bool, Doc("Whether an object that is there already may be replaced.")] = True,
        call: Call,
    ) -> Written:
        """Write an object: text as it is, everything else as JSON."""
        content = body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()
        if len(content) > LARGEST:
            raise PermanentFailure(f"The object has {len(content):,} bytes; at most {LARGEST:,} are written.")
        usual = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
        request: dict[str, Any] = {
            "Bucket": bucket,
            "Key": key,
            "Body": content,
            "ContentType": content_type or usual,
            "Metadata": {_KEY: call.idempotency_key},
            "IfNoneMatch": None if overwrite else "*",
        }
        answer = self._put(request, call)
        return {
            "bucket": bucket,
            "key": key,
            "version": str(answer.get("VersionId", "")),
            "etag": str(answer.get("ETag", "")).strip('"'),
        }

    def _put(self, request: dict[str, Any], call: Call) -> dict[str, Any]:
        """Write it. What is there already may be what an earlier attempt of this call has written."""
        try:
            return self._aws.ask("put_object", call, **request)
        except Refused as refused:
            if refused.code != "PreconditionFailed":
                raise
            there = self._aws.ask("head_object", call, Bucket=request["Bucket"], Key=request["Key"])
            if there.get("Metadata", {}).get(_KEY) != call.idempotency_key:
                told = f"{request['Bucket']}/{request['Key']} exists already and `overwrite` is false"
                raise PermanentFailure(f"{told}. Write under another key, or say `overwrite: true`.") from None
            return there
