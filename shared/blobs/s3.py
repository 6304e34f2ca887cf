"""Blobs in one S3 bucket: ``TENANT/<tenant>/blobs/<sha-256>``, written once per content."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from shared.errors import PermanentFailure
from shared.ports import Blobs


class S3Blobs(Blobs):
    """``client`` is a boto3 S3 client."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, tenant: str, digest: str, data: bytes) -> str:
        """Store ``data`` under its digest. Storing the same content again replaces it by itself."""
        key = f"TENANT/{tenant}/blobs/{digest}"
        self._client.put_object(Bucket=self._bucket, Key=key, Body=data, ContentType="application/json")
        return key

    def get(self, key: str) -> bytes:
        """Return the content. Raises PermanentFailure when it is gone."""
        try:
            return self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in {"NoSuchKey", "404"}:
                raise PermanentFailure(
                    f"The stored object {key} is gone. Restore it from the bucket's versions."
                ) from error
            raise
