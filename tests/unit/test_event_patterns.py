"""Event patterns: what EventBridge would take, and what our own runs cause."""

from __future__ import annotations

import pytest

from shared.definition.patterns import faults, of_ours

GOOD = [
    {"source": ["app.uploads"]},
    {"source": [{"prefix": "app."}], "detail-type": [{"suffix": {"equals-ignore-case": "Created"}}]},
    {"source": ["aws.s3"], "detail": {"bucket": {"name": ["in"]}, "object": {"key": [{"wildcard": "in/*.pdf"}]}}},
    {"source": ["x"], "detail": {"n": [{"numeric": [">", 0, "<=", 5]}], "ip": [{"cidr": "10.0.0.0/8"}]}},
    {"source": ["x"], "detail": {"a": [{"exists": False}], "b": [True, 5, "x"], "c": [{"anything-but": [1, 2]}]}},
    {"source": ["x"], "detail": {"$or": [{"a": [1]}, {"b": [{"anything-but": {"prefix": ["a", "b"]}}]}]}},
    {"$or": [{"source": ["x"]}, {"source": ["y"]}]},
]


@pytest.mark.parametrize("pattern", GOOD)
def test_a_good_pattern_has_no_faults_and_is_not_about_us(pattern):
    assert list(faults(pattern)) == []
    assert of_ours(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ({"source": [["x"]]}, ("source", 0)),
        ({"source": ["x"], "detail": {"a": [None]}}, ("detail", "a", 0)),
        ({"source": [{}]}, ("source", 0)),
        ({"source": [{"prefix": "a", "suffix": "b"}]}, ("source", 0)),
        ({"source": [{"prefix": 5}]}, ("source", 0)),
        ({"source": [{"prefix": ""}]}, ("source", 0)),
        ({"source": [{"wildcard": "a**b"}]}, ("source", 0)),
        ({"source": [{"anything-but": []}]}, ("source", 0)),
        ({"source": [{"anything-but": ["a", 1]}]}, ("source", 0)),
        ({"source": [{"anything-but": {"numeric": ["x"]}}]}, ("source", 0)),
        ({"source": [{"exists": "yes"}]}, ("source", 0)),
        ({"source": [{"cidr": "10.0.0.0"}]}, ("source", 0)),
        ({"detail": {"a": {}}}, ("detail", "a")),
        ({"detail": {"a": {"b": 5}}}, ("detail", "a", "b")),
        ({"detail": {"n": [{"numeric": [">", 0, "<"]}]}}, ("detail", "n", 0)),
        ({"detail": {"n": [{"numeric": ["<", 1, ">", 5]}]}}, ("detail", "n", 0)),
        ({"detail": {"n": [{"numeric": ["<", 5, ">", 1]}]}}, ("detail", "n", 0)),
        ({"detail": {"n": [{"numeric": [">", 5, "<", 1]}]}}, ("detail", "n", 0)),
        ({"detail": {"n": [{"numeric": ["=", 5, "<", 1]}]}}, ("detail", "n", 0)),
        ({"detail": {"n": [{"numeric": [["<"], 5]}]}}, ("detail", "n", 0)),
        ({"source": [{"cidr": "999.1.1.1/99"}]}, ("source", 0)),
        ({"source": [{"cidr": "10.0.0.0/33"}]}, ("source", 0)),
        ({"source": [{"cidr": "::1/129"}]}, ("source", 0)),
        ({"source": [{"cidr": 5}]}, ("source", 0)),
        ({"source": ["x" * 2035]}, ()),
        ({"$or": [{"source": ["x"]}, {"source": []}]}, ("$or", 1, "source")),
    ],
)
def test_what_would_be_refused_is_told_with_its_place(pattern, path):
    assert [at for at, _, _ in faults(pattern)] == [path]


def test_a_pattern_without_end_is_refused():
    pattern = {"source": ["x"]}
    for _ in range(100):
        pattern = {"detail": pattern}
    assert [message for _, message, _ in faults(pattern)] == ["the pattern is nested too deep"]


@pytest.mark.parametrize(
    "pattern",
    [
        {"source": [{"prefix": "aws."}]},
        {"source": [{"suffix": "states"}]},
        {"source": [{"equals-ignore-case": "AWS.States"}]},
        {"source": [{"prefix": {"equals-ignore-case": "AWS"}}]},
        {"source": [{"wildcard": "aws.*"}]},
        {"source": [{"exists": True}]},
        {"source": [{"anything-but": "app"}]},
        {"source": ["aws.states"], "detail": {"status": ["FAILED"]}},
        {"detail-type": ["AWS API Call via CloudTrail"]},
        {"region": ["eu-central-1"]},
        {"detail": {"status": ["SUCCEEDED"]}},
        {"$or": [{"source": ["x"]}, {"detail-type": ["AWS API Call via CloudTrail"]}]},
    ],
)
def test_what_runs_cause_is_recognised(pattern):
    assert list(faults(pattern)) == []
    assert of_ours(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        {"source": ["aws.states"], "detail": {"stateMachineArn": ["arn:aws:states:eu-central-1:1:stateMachine:x"]}},
        {"source": ["aws.states"], "resources": [{"prefix": "arn:aws:states:eu-central-1:1:execution:other:"}]},
        {"source": [{"anything-but": {"prefix": ["aws."]}}]},
        {"source": ["signalbox"], "detail-type": ["Run Paused"]},
        {"source": ["aws.s3"], "detail-type": ["AWS API Call via CloudTrail"]},
        {"detail-type": ["Object Created"]},
    ],
)
def test_what_others_cause_is_not(pattern):
    assert of_ours(pattern) == ""


ARN = "arn:aws:states:eu-central-1:1:"


def ended(**fields):
    """Return a pattern for executions that have ended, by the ARNs of machines or of executions."""
    machines, executions = fields.get("machines"), fields.get("executions")
    detail = {"detail": {"stateMachineArn": machines}} if machines else {}
    return {"source": ["aws.states"], **detail, **({"resources": executions} if executions else {})}


@pytest.mark.parametrize(
    "matcher",
    [
        {"exists": True},
        {"prefix": "arn:"},
        {"prefix": f"{ARN}stateMachine:"},
        {"prefix": f"{ARN}stateMachine:Sig"},
        {"prefix": f"{ARN}stateMachine:signalbox-prod-unwind"},
        {"prefix": {"equals-ignore-case": f"{ARN}statemachine:SIGNAL"}},
        {"equals-ignore-case": f"{ARN}statemachine:SIGNALBOXprodWorkflowInvoice"},
        {"wildcard": "*"},
        {"wildcard": "arn:*:stateMachine:other"},
        {"suffix": "x"},
        {"anything-but": ["x"]},
        f"{ARN}stateMachine:SignalboxProdWorkflowInvoice8E1C",
        f"{ARN}execution:signalbox-prod-unwind:01J",
    ],
)
def test_a_machine_that_may_be_ours_makes_a_loop(matcher):
    for pattern in (ended(machines=["x", matcher]), ended(executions=[matcher])):
        assert list(faults(pattern)) == []
        assert of_ours(pattern) == "aws.states"


@pytest.mark.parametrize(
    "matcher",
    [
        f"{ARN}stateMachine:orders",
        "orders",
        {"prefix": f"{ARN}stateMachine:orders"},
        {"prefix": f"{ARN}execution:signals"},
        {"prefix": "arn:aws:s3:"},
        {"wildcard": f"{ARN}stateMachine:orders-*"},
        {"equals-ignore-case": f"{ARN}stateMachine:ORDERS"},
    ],
)
def test_another_machine_makes_none(matcher):
    assert of_ours(ended(machines=[matcher])) == of_ours(ended(executions=[matcher])) == ""


def test_calls_that_cloudtrail_tells_of_name_no_machine_there():
    pattern = {"detail-type": ["AWS API Call via CloudTrail"]}
    assert of_ours({**pattern, "resources": [{"exists": True}]}) == ""
    assert of_ours({**pattern, "resources": [{"exists": False}]}) == "aws.states"
