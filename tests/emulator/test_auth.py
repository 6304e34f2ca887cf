"""With --auth, roles' policies are enforced, and a deployment over plain HTTP is possible all the same."""

from __future__ import annotations

import json

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from scripts.local import environment
from tests.emulator.emulator import Emulator, until

BUCKET = "assets"
TRUST = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
MAY_PUT = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
# As CDK's bootstrap has it on the bucket to which every deployment uploads.
TLS_ONLY = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "s3:*",
    "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"],
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}


def policy(statement):
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture
def emulator(tmp_path):
    from scripts.local import processes  # noqa: PLC0415 - as in conftest

    made = Emulator(tmp_path, "--auth")
    until(made._answers, 60)
    yield made
    processes.end(made.process)


def test_a_role_does_what_it_may_over_plain_http_and_nothing_else(emulator):
    iam, s3 = emulator.client("iam"), emulator.client("s3")
    role = iam.create_role(RoleName="publisher", AssumeRolePolicyDocument=policy(TRUST))["Role"]["Arn"]
    iam.put_role_policy(RoleName="publisher", PolicyName="p", PolicyDocument=policy(MAY_PUT))
    s3.create_bucket(Bucket=BUCKET)
    s3.put_bucket_policy(Bucket=BUCKET, Policy=policy(TLS_ONLY))
    keys = emulator.client("sts").assume_role(RoleArn=role, RoleSessionName="session")["Credentials"]
    own = boto3.client(
        "s3",
        endpoint_url=emulator.url,
        region_name=environment.REGION,
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        config=Config(retries={"total_max_attempts": 1}, proxies={}, s3={"addressing_style": "path"}),
    )
    own.put_object(Bucket=BUCKET, Key="template", Body=b"{}")
    with pytest.raises(ClientError, match="AccessDenied"):
        own.delete_object(Bucket=BUCKET, Key="template")
