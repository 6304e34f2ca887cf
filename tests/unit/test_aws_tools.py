"""Built-in tools that call AWS: what they do on moto, and what each kind of failure means."""

from __future__ import annotations

import base64
import io
import json

import boto3
import pytest
from botocore import exceptions as boto
from botocore.config import Config
from moto import mock_aws

from functions import bootstrap
from scripts.commands import own_aws
from shared.errors import (
    PermanentFailure,
    RateLimited,
    StepTimeout,
    TransientFailure,
    UnclearAnswer,
    Unreached,
)
from shared.tools.builtin import NAMES, builtin
from shared.tools.means import Means
from shared.tools.registry import Call, invoke

REGION = "eu-central-1"
KEY = "k" * 64


def client(service, timeout=5.0):
    config = Config(retries={"total_max_attempts": 1}, read_timeout=timeout)
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client(service, region_name=REGION, config=config, **keys)


def use(name, means=None, call_key=KEY, settings=None, **arguments):
    call = Call(call_key, "acme", "01RUN", "step", timeout=10.0, settings=settings or {})
    return invoke(builtin(name, means or Means(client)), arguments, call)


@pytest.fixture
def aws():
    with mock_aws():
        yield client


# --- s3 -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(aws):
    aws("s3").create_bucket(Bucket="docs", CreateBucketConfiguration={"LocationConstraint": REGION})
    return "docs"


def test_what_is_put_is_got(bucket):
    put = use("s3.put", bucket=bucket, key="a/b.json", body={"n": 1.5, "s": "ä"})
    assert (put["bucket"], put["key"]) == (bucket, "a/b.json")
    got = use("s3.get", bucket=bucket, key="a/b.json")
    assert (got["body"], got["content_type"], got["etag"]) == ({"n": 1.5, "s": "ä"}, "application/json", put["etag"])
    use("s3.put", bucket=bucket, key="note", body="hällo")
    assert use("s3.get", bucket=bucket, key="note")["body"] == "hällo"
    assert (
        use("s3.get", bucket=bucket, key="note", read="base64")["body"] == base64.b64encode("hällo".encode()).decode()
    )
    where = use("s3.get", bucket=bucket, key="note", read="nothing")
    assert (where["body"], where["size"]) == (None, 6)


def test_an_object_that_is_no_text_says_what_to_do(bucket, aws):
    aws("s3").put_object(Bucket=bucket, Key="pic", Body=b"\xff\xfe\x00")
    aws("s3").put_object(Bucket=bucket, Key="x.json", Body=b"{")
    for key in ("pic", "x.json"):
        with pytest.raises(PermanentFailure, match="`base64` or `nothing`"):
            use("s3.get", bucket=bucket, key=key)
    with pytest.raises(PermanentFailure, match="NoSuchKey"):
        use("s3.get", bucket=bucket, key="gone")


def test_a_large_object_is_not_read(bucket, aws, monkeypatch):
    monkeypatch.setattr("shared.tools.builtin.s3.LARGEST", 10)
    aws("s3").put_object(Bucket=bucket, Key="big", Body=b"x" * 11)
    with pytest.raises(PermanentFailure, match="read: nothing"):
        use("s3.get", bucket=bucket, key="big")
    assert use("s3.get", bucket=bucket, key="big", read="nothing")["size"] == 11
    with pytest.raises(PermanentFailure, match="at most 10"):
        use("s3.put", bucket=bucket, key="big", body="x" * 11)


class Taken:
    """A bucket in which the object is there already, written by the call with ``key``."""

    def __init__(self, key):
        self.key = key

    def put_object(self, **given):
        assert given["IfNoneMatch"] == "*"
        raise error("PreconditionFailed", 412)

    def head_object(self, **_):
        return {"ETag": '"e"', "Metadata": {"idempotency-key": self.key}}


def test_what_an_earlier_attempt_has_written_is_no_conflict():
    given = {"bucket": "docs", "key": "x", "body": "x", "overwrite": False}
    assert use("s3.put", Means(lambda *_: Taken(KEY)), **given)["etag"] == "e"
    with pytest.raises(PermanentFailure, match=r"exists already .*another key, or say `overwrite: true`"):
        use("s3.put", Means(lambda *_: Taken("another")), **given)


# --- dynamodb, sql --------------------------------------------------------------------------------------------------


def test_items_are_found_and_are_plain_json(aws):
    dynamo = aws("dynamodb")
    dynamo.create_table(
        TableName="orders",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "who", "KeyType": "HASH"}, {"AttributeName": "n", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "who", "AttributeType": "S"},
            {"AttributeName": "n", "AttributeType": "N"},
        ],
    )
    for n in range(5):
        more = {
            "price": {"N": "2.5"},
            "tags": {"SS": ["a"]},
            "raw": {"B": b"x"},
            "deep": {"M": {"l": {"L": [{"NULL": True}]}}},
        }
        dynamo.put_item(TableName="orders", Item={"who": {"S": "ann"}, "n": {"N": str(n)}, **more})
    given = {"table": "orders", "key": "#who = :who AND n >= :n", "names": {"who": "who"}}
    found = use("dynamodb.query", **given, values={"who": "ann", "n": 1}, limit=2, newest_first=True)
    assert [one["n"] for one in found["items"]] == [4, 3]
    assert (found["count"], found["more"]) == (2, True)
    assert found["items"][0] == {
        "who": "ann",
        "n": 4,
        "price": 2.5,
        "tags": ["a"],
        "raw": "eA==",
        "deep": {"l": [None]},
    }
    dear = {"who": "ann", "n": 0.5, "p": 2.5}
    assert use("dynamodb.query", **given, values=dear, filter="price = :p")["count"] == 4
    with pytest.raises(PermanentFailure):
        use("dynamodb.query", **given, values={"who": "ann"})
    with pytest.raises(PermanentFailure, match="1 to 1,000"):
        use("dynamodb.query", **given, values={}, limit=5_000)


class Database:
    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def execute_statement(self, **given):
        self.asked.append(given)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_values_of_a_statement_are_parameters():
    database = Database({"formattedRecords": '[{"id": 1, "name": "x"}]', "numberOfRecordsUpdated": 0})
    given = {"cluster_arn": "arn:c", "secret_arn": "arn:s", "database": "shop", "sql": "SELECT * FROM t WHERE id = :id"}
    values = {"id": 1, "name": "'; DROP TABLE t", "price": 1.5, "open": True, "none": None}
    found = use("sql.query", Means(lambda *_: database), **given, parameters=values)
    assert found == {"rows": [{"id": 1, "name": "x"}], "updated": 0}
    (asked,) = database.asked
    assert asked["sql"] == given["sql"]
    assert [one["value"] for one in asked["parameters"]] == [
        {"longValue": 1},
        {"stringValue": "'; DROP TABLE t"},
        {"doubleValue": 1.5},
        {"booleanValue": True},
        {"isNull": True},
    ]
    asleep = Means(lambda *_: Database(error("DatabaseResumingException", 400)))
    with pytest.raises(Unreached):
        use("sql.query", asleep, **given)


# --- messages -------------------------------------------------------------------------------------------------------


def test_a_queue_that_keeps_an_order_takes_a_call_once(aws):
    sqs = aws("sqs")
    url = sqs.create_queue(QueueName="work.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    first = use("sqs.send", queue=url, body={"a": 1})
    assert first["sequence"]
    use("sqs.send", queue=url, body={"a": 1})
    use("sqs.send", queue=url, body={"a": 1}, call_key="another")
    got = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
    )
    assert [json.loads(one["Body"]) for one in got["Messages"]] == [{"a": 1}, {"a": 1}]
    assert got["Messages"][0]["Attributes"]["MessageGroupId"] == "01RUN"
    assert got["Messages"][0]["MessageAttributes"]["idempotency_key"]["StringValue"] == KEY


def test_other_queues_and_topics_carry_the_key(aws):
    sqs, sns = aws("sqs"), aws("sns")
    url = sqs.create_queue(QueueName="plain")["QueueUrl"]
    assert use("sqs.send", queue=url, body="text")["sequence"] == ""
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "text"
    topic = sns.create_topic(Name="news")["TopicArn"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    assert use("sns.publish", topic=topic, message={"b": 2}, subject="news")["message_id"]
    heard = json.loads(sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"])
    assert (json.loads(heard["Message"]), heard["Subject"]) == ({"b": 2}, "news")
    assert heard["MessageAttributes"]["idempotency_key"]["Value"] == KEY


class Bus:
    def __init__(self, entry):
        self.entry, self.asked = entry, []

    def put_events(self, **given):
        self.asked += given["Entries"]
        return {"Entries": [self.entry]}


def test_an_event_names_its_call_beside_its_detail():
    bus = Bus({"EventId": "e-1"})
    given = {"bus": "main", "source": "shop", "detail_type": "Paid", "detail": {"n": 1}}
    assert use("events.put", Means(lambda *_: bus), **given) == {"event_id": "e-1"}
    assert json.loads(bus.asked[0]["Detail"]) == {"n": 1}
    assert bus.asked[0]["Resources"] == [f"signalbox:call:{KEY}"]
    for code, kind in (("InternalFailure", TransientFailure), ("MalformedDetail", PermanentFailure)):
        with pytest.raises(kind, match=code):
            use("events.put", Means(lambda *_, code=code: Bus({"ErrorCode": code})), **given)


def test_events_reach_a_bus(aws):
    aws("events").create_event_bus(Name="main")
    given = {"source": "shop", "detail_type": "Paid", "detail": {}}
    assert use("events.put", bus="main", **given)["event_id"]


def test_mail_comes_from_the_deployments_address(aws):
    aws("ses").verify_email_identity(EmailAddress="box@example.test")
    given = {"to": "ann@example.test", "subject": "Hällo", "text": "Hi"}
    settings = {"EMAIL_SENDER": "box@example.test"}
    assert use("email.send", settings=settings, **given, html="<p>Hi</p>", reply_to="a@example.test")["message_id"]
    with pytest.raises(PermanentFailure, match="EMAIL_SENDER"):
        use("email.send", **given)
    for wrong in ({"subject": "a\nBcc: x@evil.test"}, {"to": ["a@b.test\r\nx"]}, {"to": []}, {"to": ["a@b.test"] * 51}):
        with pytest.raises(PermanentFailure):
            use("email.send", settings=settings, **{**given, **wrong})


# --- lambda, slack --------------------------------------------------------------------------------------------------


class Functions:
    def __init__(self, payload, **more):
        self.payload, self.more, self.asked = payload, more, []

    def invoke(self, **given):
        self.asked.append(given)
        return {"Payload": io.BytesIO(self.payload), "ExecutedVersion": "3", **self.more}


def test_a_function_is_asked_with_its_key_and_answers():
    functions = Functions(b'{"ok": true}')
    found = use("lambda.invoke", Means(lambda *_: functions), function="pay", payload={"n": 1}, qualifier="live")
    assert found == {"payload": {"ok": True}, "version": "3"}
    (asked,) = functions.asked
    assert (asked["FunctionName"], asked["Qualifier"], json.loads(asked["Payload"])) == ("pay", "live", {"n": 1})
    assert json.loads(base64.b64decode(asked["ClientContext"])) == {"custom": {"idempotency_key": KEY}}
    assert use("lambda.invoke", Means(lambda *_: Functions(b"")), function="pay")["payload"] is None


@pytest.mark.parametrize(
    ("kind", "raised"),
    [("ValueError", UnclearAnswer), ("Sandbox.Timedout", StepTimeout), ("Runtime.ExitError", TransientFailure)],
)
def test_a_function_that_failed_has_run(kind, raised):
    payload = json.dumps({"errorType": kind, "errorMessage": "because"}).encode()
    functions = Functions(payload, FunctionError="Unhandled")
    with pytest.raises(raised, match="because") as told:
        use("lambda.invoke", Means(lambda *_: functions), function="pay")
    assert told.value.uncertain is True


def test_slack_is_posted_to_by_a_webhook_of_slacks():
    from tests.unit.raw_server import RawServer, reply  # noqa: PLC0415

    with RawServer(lambda _: [reply(b"ok", content_type="text/html")]) as server:
        settings = {"HTTP_ALLOWED_HOSTS": server.place}
        given = {"url": f"{server.url}/services/T/B/x", "text": "Hi", "blocks": [{"type": "divider"}]}
        assert use("slack.post", settings=settings, **given) == {"posted": True}
        assert json.loads(server.got[0].body) == {"text": "Hi", "blocks": [{"type": "divider"}]}
    with pytest.raises(PermanentFailure, match="no host of Slack's"):
        use("slack.post", url="https://example.com/hook", text="Hi")


# --- failures -------------------------------------------------------------------------------------------------------


def error(code, status=400, **headers):
    meta = {"HTTPStatusCode": status, "HTTPHeaders": {name.replace("_", "-"): value for name, value in headers.items()}}
    return boto.ClientError({"Error": {"Code": code, "Message": "because"}, "ResponseMetadata": meta}, "op")


FAILURES = [
    (error("ThrottlingException", 400), RateLimited, False),
    (error("SlowDown", 503), RateLimited, False),
    (error("TooManyRequestsException", 429, retry_after="9"), RateLimited, False),
    (error("AccessDenied", 403), PermanentFailure, False),
    (error("AuthorizationError", 403), PermanentFailure, False),
    (error("ValidationException", 400), PermanentFailure, False),
    (error("InternalError", 500), TransientFailure, True),
    (error("ServiceUnavailable", 503), TransientFailure, True),
    (error("RequestTimeout", 400), StepTimeout, True),
    (boto.NoCredentialsError(), PermanentFailure, False),
    (boto.NoRegionError(), PermanentFailure, False),
    (boto.ParamValidationError(report="x"), PermanentFailure, False),
    (boto.ConnectTimeoutError(endpoint_url="x"), Unreached, False),
    (boto.EndpointConnectionError(endpoint_url="x"), Unreached, False),
    (boto.ReadTimeoutError(endpoint_url="x"), StepTimeout, True),
    (boto.ConnectionClosedError(endpoint_url="x"), TransientFailure, True),
    (boto.HTTPClientError(error="x"), TransientFailure, True),
]


@pytest.mark.parametrize(
    ("given", "raised", "uncertain"), FAILURES, ids=lambda one: getattr(one, "__name__", str(one)[:40])
)
def test_what_aws_says_is_a_class_of_failure(given, raised, uncertain):
    means = Means(lambda *_: Database(given))
    with pytest.raises(raised) as told:
        use("sql.query", means, cluster_arn="c", secret_arn="s", database="d", sql="SELECT 1")
    assert told.value.uncertain is uncertain
    assert isinstance(told.value, Unreached) is (raised is Unreached)


def test_a_wish_to_wait_is_kept():
    means = Means(lambda *_: Database(error("TooManyRequestsException", 429, retry_after="9")))
    with pytest.raises(RateLimited) as told:
        use("sql.query", means, cluster_arn="c", secret_arn="s", database="d", sql="SELECT 1")
    assert told.value.retry_after == 9.0


def test_a_refusal_says_which_setting_to_add():
    means = Means(lambda *_: Database(error("AccessDeniedException", 403)))
    with pytest.raises(PermanentFailure, match=r'tool_grants\["sql\.query"\] in infra/settings\.py'):
        use("sql.query", means, cluster_arn="c", secret_arn="s", database="d", sql="SELECT 1")


def test_without_credentials_it_says_so(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    own_aws.client.cache_clear()
    with pytest.raises(PermanentFailure, match="needs AWS credentials and a region"):
        use("sqs.send", Means(own_aws.client), queue="https://sqs.eu-central-1.amazonaws.com/1/q", body="x")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_argument_of_a_built_in_tool_says_what_it_is(name):
    tool = builtin(name)
    assert tool.description
    silent = [key for key, schema in tool.parameters["properties"].items() if not schema.get("description")]
    assert tool.parameters["properties"]
    assert not silent


def test_a_host_without_clients_says_so():
    with pytest.raises(PermanentFailure, match="no client of sqs"):
        use("sqs.send", Means(), queue="q", body="x")


@pytest.mark.parametrize("make", [own_aws.client, bootstrap._tool_client], ids=["own", "deployed"])
def test_a_host_makes_one_client_a_service_and_time_and_it_never_repeats(monkeypatch, make):
    made = []

    def client_of(service, config):
        made.append((service, config.read_timeout, config.retries))
        return Functions(b"1")

    monkeypatch.setattr("boto3.client", client_of)
    make.cache_clear()
    for timeout in (10.0, 10.0, 20.0):
        call = Call(KEY, "acme", "01RUN", "step", timeout=timeout)
        assert invoke(builtin("lambda.invoke", Means(make)), {"function": "pay"}, call)["payload"] == 1
    make.cache_clear()
    once = {"mode": "standard", "total_max_attempts": 1}
    assert made == [("lambda", 9.0, once), ("lambda", 19.0, once)]
