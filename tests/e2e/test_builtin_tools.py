"""Built-in tools in the deployed app: AWS as the local cloud has it, and HTTP to a host that the deployment allows."""

from __future__ import annotations

import json

import pytest
from publish import client, publish

pytestmark = pytest.mark.e2e

FILE = """
workflow: built_in
input: {type: object, required: [erp, queue], properties: {erp: {type: string}, queue: {type: string}}}
steps:
  keep:
    type: tool
    tool: s3.put
    with: {bucket: built-in, key: a.json, body: {n: 1}}
    risk: reversible
    compensate: {tool: s3.put, with: {bucket: built-in, key: a.json, body: {}}}
  read: {type: tool, needs: [keep], tool: s3.get, with: {bucket: built-in, key: a.json}, risk: read}
  send:
    type: tool
    needs: [read]
    tool: sqs.send
    with: {queue: "${ input.queue }", body: "${ steps.read.output.body }"}
    risk: reversible
    compensate: {tool: sqs.send, with: {queue: "${ input.queue }", body: {not: 1}}}
  look:
    type: tool
    needs: [read]
    tool: http.request
    with: {url: "${ input.erp }/documents", query: {key: none}}
    risk: read
  inside:
    type: tool
    needs: [read]
    tool: http.request
    with: {url: "${ 'http://169.254.169.254/latest' }"}
    risk: read
    on_error: continue
"""


def test_built_in_tools_work_where_they_are_deployed(deployed):
    client(deployed, "s3").create_bucket(Bucket="built-in")
    sqs = client(deployed, "sqs")
    queue = sqs.create_queue(QueueName="built-in")["QueueUrl"]
    name = publish(deployed, FILE)
    answer = deployed.api("POST", f"/v1/workflows/{name}/runs", {"input": {"erp": deployed.erp_url, "queue": queue}})
    assert answer.status == 201, answer.text
    view = deployed.reaches(answer.json["run"], "completed", "failed", "paused", patience=120)
    steps = {step["path"]: step for step in view["steps"]}
    assert view["state"] == "completed", view["steps"]
    assert steps["read"]["output"]["body"] == {"n": 1}
    assert steps["look"]["output"]["status"] == 200
    assert steps["inside"]["status"] == "failed"
    assert "link-local" in steps["inside"]["error"]["message"]
    (message,) = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"]
    assert json.loads(message["Body"]) == {"n": 1}
    assert len(message["MessageAttributes"]["idempotency_key"]["StringValue"]) == 64
