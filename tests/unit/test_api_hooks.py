"""Webhooks: who has signed starts one run, who has not learns nothing."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from shared.api import openapi
from shared.api.dispatch import dispatch
from shared.api.hooks import LIMIT
from shared.api.problems import refusal
from shared.api.web import Request
from shared.budget.tenant import set_limits
from shared.errors import RequestRefused, TransientFailure, Unverified
from shared.manifest import Trigger
from tests.unit.api_client import ask, check, data, problem
from tests.unit.waiting_run import TENANT, fresh

OLD, NEW, FOREIGN, SHORT = (
    base64.b64encode(bytes([n]) * size).decode() for n, size in ((1, 24), (2, 32), (3, 24), (4, 8))
)
PATH = "/v1/hooks/invoice/erp"


def hook(id_="erp", **more):
    given = {"input": "${ trigger.body }", "spec": {"scheme": "standard-webhooks", "secret": "erp_webhook"}, **more}
    return Trigger(kind="webhook", id=id_, tenant=TENANT, **given)


def world(*triggers, secret=f"whsec_{NEW}"):
    made = fresh()
    made.triggers = triggers or (hook(),)
    made.secrets.versions["erp_webhook"] = [secret]
    return made


def signed(body, id_="msg_1", key=NEW, ago=0):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    at = datetime.now(tz=UTC) - timedelta(seconds=ago)
    signature = Webhook(key).sign(msg_id=id_, timestamp=at, data=text.decode())
    return text, {"webhook-id": id_, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def send(made, body, path=PATH, headers=None, **more):
    text, own = signed(body, **more)
    answer = dispatch(made.api, Request("POST", path, {**own, **(headers or {})}, {}, text, "request-1"))
    check("POST", path, answer)
    return answer


def test_a_signed_webhook_starts_a_run_that_says_what_started_it():
    made = world()
    answer = send(made, {"document": "x"})
    assert (answer.status, answer.headers["location"]) == (201, f"../../runs/{data(answer)['run']}")
    run = data(ask(made, "GET", f"/v1/runs/{data(answer)['run']}"))
    assert (run["tenant"], run["trigger"], run["trigger_id"], run["occurrence"], run["initiator"], run["input"]) == (
        *(TENANT, "webhook", "erp", "msg_1", "webhook:erp"),
        {"document": "x"},
    )
    told = data(ask(made, "GET", f"/v1/runs/{run['id']}/events"))["events"][0]["data"]
    assert (told["trigger_id"], told["occurrence"]) == ("erp", "msg_1")


def test_one_webhook_id_makes_one_run_whatever_else_it_says():
    made = world()
    first, again, other = send(made, {"document": "x"}), send(made, {"document": "x"}), send(made, {"document": "y"})
    assert (first.status, again.status, other.status) == (201, 200, 200)
    assert len({data(answer)["run"] for answer in (first, again, other)}) == 1
    assert data(send(made, {"document": "x"}, id_="msg_2"))["new"] is True


def test_a_webhook_that_comes_again_after_the_mapping_has_changed_is_still_the_same_run():
    made = world()
    first = send(made, {"document": "x"})
    made.triggers = (hook(input={"document": "${ trigger.body.text }"}),)
    again = send(made, {"document": "x"})
    assert (again.status, data(again)) == (200, {"run": data(first)["run"], "new": False})


def test_no_caller_of_the_api_can_take_a_webhooks_key():
    made = world()
    send(made, {"document": "x"})
    (item,) = [item for key, item in made.store.items.items() if key.sk == "REQUEST"]
    answer = ask(made, "POST", "/v1/workflows/invoice/runs", {"input": {}}, headers={"idempotency-key": item["key"]})
    assert problem(answer) == (400, "invalid_key")


@pytest.mark.parametrize("secret", [f"whsec_{OLD} whsec_{NEW}", f"{NEW},{OLD}", f" whsec_{OLD},  whsec_{NEW}\n"])
def test_old_and_new_secret_are_valid_while_one_is_rotated(secret):
    made = world(secret=secret)
    assert send(made, {"document": "x"}, key=OLD).status == 201
    assert send(made, {"document": "x"}, id_="msg_2", key=NEW).status == 201
    assert send(made, {"document": "x"}, id_="msg_3", key=FOREIGN).status == 401


def refusals():
    made = world(hook(), Trigger("queue", "intake", TENANT, {}, {}), hook("other", spec={"secret": "nowhere"}))
    text, headers = signed({"document": "x"})
    yield send(made, {"document": "x"}, key=FOREIGN)
    yield send(made, {"document": "x"}, ago=301)
    yield send(made, {"document": "x"}, ago=-301)
    for change in (
        {"webhook-id": "msg_9"},
        {"webhook-id": ""},
        {"webhook-id": "a b"},
        {"webhook-id": "a" * 201},
        {"webhook-id": "msg.1"},
        {"webhook-timestamp": "1" * 21},
        {"webhook-timestamp": headers["webhook-timestamp"] + ".0"},
        {"webhook-signature": " ".join([headers["webhook-signature"]] * 90)},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": "nan"},
        {"webhook-timestamp": "1e400"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,ü"},
        {"webhook-signature": "v1,%%%"},
        {"webhook-signature": headers["webhook-signature"].replace("v1,", "v2,")},
    ):
        yield send(made, {"document": "x"}, headers=change)
    yield dispatch(made.api, Request("POST", PATH, {}, {}, text, "request-1"))
    yield dispatch(made.api, Request("POST", PATH, headers, {}, b'{"document": "y"}', "request-1"))
    yield dispatch(made.api, Request("POST", PATH, headers, {}, b"\xff\xfe", "request-1"))
    for path in ("intake", "other", "nothing", "ERP", "%00"):
        yield send(made, {"document": "x"}, path=f"/v1/hooks/invoice/{path}")
    for name in ("nothing", "Invoice", "a" * 300, "%2e%2e"):
        yield send(made, {"document": "x"}, path=f"/v1/hooks/{name}/erp")
    for secret in ("", "whsec_", f"whsec_{SHORT}", "no base64!", "ü"):
        yield send(world(secret=secret), {"document": "x"}, key=SHORT)
    assert made.engine.executions == {}


def test_whoever_has_not_signed_hears_the_same_whether_there_is_such_a_webhook_or_not():
    answers = list(refusals())
    assert len(answers) > 25
    assert {problem(answer) for answer in answers} == {(401, "unverified")}
    assert len({json.loads(answer.body)["detail"] for answer in answers}) == 1
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Standard-Webhooks"}


def test_what_the_document_says_of_a_signed_request_is_what_is_done():
    operation = openapi.document()["paths"]["/v1/hooks/{workflow}/{trigger}"]["post"]
    named = {one["name"]: one for one in operation["parameters"] if one["in"] == "header"}
    assert operation["requestBody"]["required"] is True
    assert set(named) == {"webhook-id", "webhook-timestamp", "webhook-signature"}
    text, headers = signed({"document": "x"})
    longest = {"webhook-id": "a" * 200, "webhook-signature": headers["webhook-signature"]}
    for name, one in named.items():
        assert one["required"] is True
        without = {other: value for other, value in headers.items() if other != name}
        for wrong in (without, {**headers, name: ""}, {**headers, name: "1" * (one["schema"]["maxLength"] + 1)}):
            assert dispatch(world().api, Request("POST", PATH, wrong, {}, text, "r")).status == 401
    assert send(world(), {"document": "x"}, id_=longest["webhook-id"]).status == 201
    many = " ".join([*["v1,AAAA"] * 400, headers["webhook-signature"]])
    assert len(many) < named["webhook-signature"]["schema"]["maxLength"]
    assert send(world(), {"document": "x"}, headers={"webhook-signature": many}).status == 201


def test_only_a_missing_signature_is_asked_for_by_its_scheme():
    """Another refusal of that status would have asked for a signature too."""
    request = Request("GET", "/v1/runs", {}, {}, b"", "r")

    class Other(RequestRefused):
        status, code = 401, "other"

    assert "www-authenticate" not in refusal(Other("no"), request).headers
    assert refusal(Unverified(), request).headers == {"www-authenticate": "Standard-Webhooks"}


@pytest.mark.parametrize("path", [PATH, "/v1/hooks/invoice/nothing"])
def test_while_secrets_cannot_be_read_a_webhook_may_come_again(path):
    def throttled(*_names):
        raise TransientFailure("throttled")

    made = world()
    made.secrets.version = throttled
    assert send(made, {"document": "x"}, path=path).status == (503 if path == PATH else 401)


def test_a_payload_that_does_not_fit_names_its_field():
    answer = send(world(), {"document": 5})
    assert problem(answer) == (422, "unfit_input")
    assert (
        "does not fit the input of invoice at $.document: 5 is not of type 'string'"
        in json.loads(answer.body)["detail"]
    )
    assert problem(send(world(), [1])) == (422, "unfit_input")
    made = world(hook(input={"document": "${ trigger.body.text }"}))
    answer = send(made, {"txt": "x"})
    assert problem(answer) == (422, "unfit_input")
    assert "trigger.body.text" in json.loads(answer.body)["detail"]


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"[" * 2000])
def test_a_signed_body_that_is_no_json_is_refused(body):
    assert problem(send(world(), body)) == (400, "invalid_body")


def test_a_body_that_is_too_large_is_refused_before_anything_is_looked_up():
    made = world()
    assert problem(dispatch(made.api, Request("POST", PATH, {}, {}, b"x" * (LIMIT + 1), "r"))) == (413, "too_large")


def test_the_mapping_sees_headers_but_none_that_may_hold_a_secret():
    made = world(hook(input={"document": "${ trigger.headers }"}))
    secret = {"authorization": "a", "cookie": "b", "x-api-key": "c", "x-hub-signature": "d", "x-auth-token": "e"}
    answer = send(made, {}, headers={**secret, "x-kind": "invoice"})
    detail = json.loads(answer.body)["detail"]  # an object is no text, and the message quotes it
    assert "x-kind" in detail
    assert not [name for name in secret if name in detail]


def test_a_budget_that_is_used_up_refuses_the_webhook_which_may_come_again():
    made = world()
    set_limits(made.store, TENANT, {"usd": 0}, monthly=False, now=made.clock.now())
    assert problem(send(made, {"document": "x"})) == (402, "tenant_budget_exceeded")


def test_a_workflow_shows_its_triggers():
    made = world(hook(), Trigger("queue", "intake", TENANT, {}, {}))
    made.publish()
    erp, intake = data(ask(made, "GET", "/v1/workflows/invoice"))["triggers"]
    assert (erp["id"], erp["kind"], erp["tenant"], erp["path"]) == ("erp", "webhook", TENANT, PATH)
    assert (intake["queue"], intake["path"]) == ("signalbox-local-invoice-intake", None)
    assert "secret" not in erp
