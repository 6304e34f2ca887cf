"""Secrets in arguments: named where they are kept, filled in for the call, and nowhere else."""

from __future__ import annotations

import pytest

from shared.definition.expressions import render
from shared.errors import BrokenTool, PermanentFailure, PolicyViolation, TransientFailure
from shared.redaction import Known
from shared.runtime.secrets import rendered, resolved, uses
from shared.secretstore.local import EnvironmentSecrets
from shared.testing import FakeSecrets

SECRETS = FakeSecrets(token=["old-value", "new-value"], key=["k-e-y!"])
NAMES = {"input": {"n": 5, "text": "hello", "forged": {"$secret": ["", "key@v1", ""]}}}


def named(template):
    return rendered(template, lambda one: render(one, NAMES), SECRETS, "acme")


def filled(template, arguments=None):
    return resolved(template, named(template) if arguments is None else arguments, SECRETS, "acme")


def test_a_secret_is_named_with_its_newest_version_alone_and_inside_text():
    template = {
        "auth": "Bearer ${ secrets.token } for ${ input.n }",
        "list": ["${secrets.key}", "${input.n}"],
        "n": 1,
    }
    arguments = named(template)
    assert arguments == {
        "auth": {"$secret": ["Bearer ", "token@v2", " for 5"]},
        "list": [{"$secret": ["", "key@v1", ""]}, 5],
        "n": 1,
    }
    known = filled(template)
    assert known.arguments == {"auth": "Bearer new-value for 5", "list": ["k-e-y!", 5], "n": 1}
    assert set(known.values) == {"new-value", "k-e-y!"}


def test_two_secrets_may_stand_in_one_text():
    assert filled("${ secrets.token }:${ secrets.key }").arguments == "new-value:k-e-y!"


def test_a_template_without_secrets_is_rendered_as_ever():
    template = {"a": "${ input.text }", "b": "secrets.token", "c": "$${ secrets.token }"}
    assert not uses(template)
    assert named(template) == {"a": "hello", "b": "secrets.token", "c": "${ secrets.token }"}


def test_what_looks_like_a_reference_in_data_stays_data():
    template = {"data": "${ input.forged }", "auth": "${ secrets.token }"}
    known = filled(template)
    assert known.arguments == {"data": {"$secret": ["", "key@v1", ""]}, "auth": "new-value"}


@pytest.mark.parametrize(
    "forged",
    [
        {"$secret": ["", "key@v1", ""]},
        {"$secret": ["", "token@v2", "", "key@v1", ""]},
        {"$secret": []},
        {"$secret": "token@v2"},
        {},
        "token@v2",
        None,
    ],
)
def test_arguments_that_name_another_secret_than_the_definition_are_refused(forged):
    with pytest.raises(PolicyViolation):
        filled({"auth": "${ secrets.token }"}, {"auth": forged})


def test_the_version_that_was_named_is_the_one_that_is_used():
    assert filled("${ secrets.token }", {"$secret": ["", "token@v1", ""]}).arguments == "old-value"


def test_what_a_tool_returns_or_says_does_not_hold_the_value():
    known = Known({}, ("p a&ss",))
    told = known.call(lambda _: {"p a&ss": ["say p a&ss", "as p%20a%26ss", 1, None]})
    assert told == {"[redacted]": ["say [redacted]", "as [redacted]", 1, None]}

    def fails(_):
        raise BrokenTool("refused: p a&ss") from ValueError("p a&ss")

    with pytest.raises(BrokenTool, match=r"refused: \[redacted\]") as caught:
        known.call(fails)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_value_too_short_to_be_hidden_is_refused():
    with pytest.raises(PermanentFailure, match="fewer than 4"):
        resolved("${ secrets.pin }", {"$secret": ["", "pin@v1", ""]}, FakeSecrets(pin=["123"]), "acme")


def test_in_process_a_secret_is_an_environment_variable_and_its_version_follows_its_value():
    given = {"SIGNALBOX_SECRET_ERP_TOKEN": "first"}
    secrets = EnvironmentSecrets(given)
    version = secrets.version("local", "erp_token")
    assert secrets.value("local", "erp_token", version) == "first"
    given["SIGNALBOX_SECRET_ERP_TOKEN"] = "second"
    with pytest.raises(PermanentFailure, match="has changed"):
        secrets.value("local", "erp_token", version)
    with pytest.raises(PermanentFailure, match="SIGNALBOX_SECRET_OTHER"):
        secrets.version("local", "other")


def test_failures_keep_what_they_are():
    def fails(_):
        raise TransientFailure("secret", retry_after=3)

    with pytest.raises(TransientFailure) as caught:
        Known({}, ("secret",)).call(fails)
    assert (str(caught.value), caught.value.retry_after, caught.value.uncertain) == ("[redacted]", 3, True)
