"""`triggers list`, `plan` and `run FILE --trigger`: what starts runs, and trying it without a cloud."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
import yaml
from typer.testing import CliRunner

from scripts.cli import app
from scripts.commands import triggers
from scripts.commands.output import Refused
from scripts.commands.plan import facts_of
from scripts.commands.triggers import rehearsed
from shared.compiler import compile_file
from shared.forecast import Forecast
from shared.runtime.host import Published
from tests.unit.test_cli_commands import ANSWERS, api, cli

__all__ = ["api", "cli"]

FILE = """workflow: demo
input: {type: object, required: [doc], properties: {doc: {type: string}}}
triggers:
  - webhook: {id: erp, secret: erp_webhook}
  - schedule:
      {id: nightly, tenant: acme, cron: "0 2 * * ? *", timezone: Europe/Berlin, input: {doc: "${ trigger.time }"}}
  - event: {id: uploaded, pattern: {source: [app.uploads]}, input: {doc: "${ trigger.type + trigger.detail.doc }"}}
  - queue: {id: intake, tenant_by_group: true, input: {doc: "${ trigger.attributes.MessageGroupId + trigger.body }"}}
steps: {a: {type: transform, set: {x: 1}}}
"""


@pytest.fixture
def published(tmp_path):
    (tmp_path / "demo.yaml").write_text(FILE)
    return Published("demo", 1, "h", "m", compile_file(tmp_path / "demo.yaml").manifest)


@pytest.mark.parametrize(
    ("name", "content", "given"),
    [
        ("erp", {"doc": "x"}, "x"),
        ("uploaded", {"doc": "x"}, "localx"),
        ("intake", "x", "localx"),
    ],
)
def test_an_author_can_try_a_mapping(published, name, content, given):
    made = rehearsed(published, name, content)
    assert (made.input, made.trigger_id, len(made.occurrence)) == ({"doc": given}, name, 26)


def test_a_schedule_that_is_tried_happens_now(published):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", rehearsed(published, "nightly", {}).input["doc"])


def test_what_cannot_be_tried_says_why(published):
    with pytest.raises(Refused, match="has no trigger nothing") as refused:
        rehearsed(published, "nothing", {})
    assert "erp, nightly, uploaded, intake" in refused.value.remedy
    with pytest.raises(Refused, match=r"\$: 'doc' is a required property|\$: "):
        rehearsed(published, "erp", {"dok": 1})


def test_a_trigger_is_for_a_file(cli):
    done = cli("run", "invoice", "--trigger", "erp")
    assert done.exit_code == 2
    assert "is for a workflow file" in done.output


def test_plan_lists_what_starts_runs(tmp_path):
    file = tmp_path / "demo.yaml"
    file.write_text(FILE)
    erp, nightly, uploaded, intake = facts_of(Forecast(compile_file(file)))["triggers"]
    assert (erp["kind"], erp["secret"]) == ("webhook", "erp_webhook")
    assert (nightly["cron"], nightly["timezone"], nightly["tenant"]) == ("0 2 * * ? *", "Europe/Berlin", "acme")
    assert uploaded["pattern"] == {"source": ["app.uploads"]}
    assert (intake["tenant_by_group"], intake["queue"]) == (True, "signalbox-<env>-demo-intake")
    shown = " ".join(CliRunner().invoke(app, ["plan", str(file)]).stdout.split())
    assert "webhook erp (signed with the secret erp_webhook); schedule nightly (0 2 * * ? * Europe/Berlin" in shown


def shown_by_the_api():
    entries = [dict(next(iter(one.items()))[1], kind=next(iter(one))) for one in yaml.safe_load(FILE)["triggers"]]
    places = {"webhook": {"path": "/v1/hooks/demo/erp"}, "queue": {"queue": "signalbox-local-demo-intake"}}
    empty = dict.fromkeys(("path", "queue", "cron", "timezone", "pattern"))
    known = ("id", "kind", "tenant", *empty)
    return [
        {**empty, "tenant": "default", "active": one["kind"] != "schedule", **places.get(one["kind"], {})}
        | {name: value for name, value in one.items() if name in known}
        for one in entries
    ]


def test_triggers_are_listed_with_where_and_when(cli, api, monkeypatch):
    monkeypatch.setitem(ANSWERS, ("GET", "/v1/workflows/invoice"), (200, {"triggers": shown_by_the_api()}))
    done = cli("triggers", "list")
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert f"POST http://127.0.0.1:{api.server_port}/v1/hooks/demo/erp" in words
    assert "queue signalbox-local-demo-intake" in words
    assert "the local cloud has no schedules" in words
    nightly = json.loads(cli("triggers", "list", "invoice", "--json").stdout)["triggers"][1]
    assert len(nightly["next"]) == triggers.NEXT
    assert nightly["next"][0] > datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
