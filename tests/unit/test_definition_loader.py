import time

import pytest

from shared.definition.loader import MAX_PROMPT_BYTES, load_file, load_text
from shared.errors import DefinitionError

HEAD = "workflow: demo\nsteps:\n"
STEP = HEAD + "  one: {type: transform, set: {a: 1}}\n"
HOOK = "triggers:\n  - webhook: {id: a, "


def faults(text, folder=None):
    with pytest.raises(DefinitionError) as caught:
        load_text(text, "demo.yaml", folder)
    return caught.value.findings


def only(text, folder=None):
    (finding,) = faults(text, folder)
    return finding


def test_loads_with_positions():
    loaded = load_text(STEP, "demo.yaml", None)
    assert loaded.workflow.workflow == "demo"
    assert loaded.position(("steps", "one")) == (3, 3)
    assert loaded.position(("steps", "one", "set", "a")) == (3, 32)
    assert loaded.position(("steps", "one", "nothing", "here")) == (3, 3)


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "remedy"),
    [
        ("workflow: demo\nworkflow: x\n" + STEP[15:], 2, 1, "`workflow` stands here twice (first in line 1)", "Remove"),
        (STEP + "description: &a x\n", 4, 14, "anchor &a is not allowed", "Write the value"),
        (STEP + "description: *a\n", 4, 14, "alias *a is not allowed", "Write the value out"),
        (STEP + "description: !!str x\n", 4, 14, "tag tag:yaml.org,2002:str is not allowed", "plain YAML"),
        (STEP + "description:\tx\n", 4, 13, "a tab is not allowed", "spaces"),
        (STEP + "1: x\n", 4, 1, "the key `1` is not text", '"1" in quotes'),
        (STEP + "true: x\n", 4, 1, "the key `true` is not text", "quotes"),
        (STEP + "? [a]\n: x\n", 4, 3, "only plain text can be a key", "word"),
        ("\ufeff" + STEP, 1, 1, "byte-order mark", "without BOM"),
        (STEP + "---\na: 1\n", 4, 1, "a second document", "one workflow a file"),
        ("", 1, 1, "the file is empty", "`workflow` and `steps`"),
        (STEP + "description: 'x\n", 5, 1, "this is not YAML", "quotes"),
        (STEP + "description: 0123\n", 4, 14, "0123 could be octal, decimal or text", '"0123" in quotes'),
        (STEP + "description: .inf\n", 4, 14, ".inf is not a number that JSON can hold", ""),
        (STEP + "description: 1e999\n", 4, 14, "1e999 is not a number that JSON can hold", ""),
        (STEP + "description: " + "9" * 5000 + "\n", 4, 14, "is not a number that JSON can hold", ""),
        (STEP + "descripton: x\n", 4, 1, "unknown field `descripton`", "Did you mean `description`?"),
        (STEP + "triggers: {}\n", 4, 1, "`triggers`: expected a list", ""),
        (STEP + HOOK + "secret: whsec_MfKQ9r}\n", 5, 22, "never the secret itself: put it by", ""),
        (STEP + HOOK + "secret: s, tenant: A B}\n", 5, 33, "`tenant`: a tenant's name has small letters", ""),
        (STEP + HOOK + "secret: s, scheme: hmac}\n", 5, 33, "`scheme`: expected one of `standard-webhooks`", ""),
        (STEP + HOOK + "secret: s, scret: x}\n", 5, 33, "unknown field `scret`", "Did you mean `secret`?"),
        (STEP + "triggers:\n  - hook: {id: a}\n", 5, 5, "unknown field `hook`", "Did you mean `webhook`?"),
        (STEP + "triggers:\n  - queue: {id: A}\n", 5, 13, "`id`: expected a name of small letters", ""),
        (STEP + "triggers:\n  - queue: {}\n", 5, 5, "`id` is missing", ""),
        (STEP + "triggers:\n  - schedule: {id: a, cron: '* * *'}\n", 5, 23, "`cron`: expected six fields", ""),
        (STEP + "triggers:\n  - schedule: {id: a, cron: 5}\n", 5, 23, "`cron`: expected text", ""),
        (STEP + "triggers:\n  - event: {id: a, pattern: [x]}\n", 5, 20, "`pattern`: expected a mapping", ""),
        (STEP + "deadline: 2\n", 4, 1, "expected a duration with its unit", ""),
        (STEP + "on_error: puase\n", 4, 1, "not `puase`", ""),
        (STEP + "budget: {usd: -1}\n", 4, 10, "`usd`: expected an amount of USD", ""),
        (STEP + "budget: {active_time: 10}\n", 4, 10, "expected a duration with its unit", ""),
        (STEP + "budget: {tokens: '5'}\n", 4, 10, "expected a whole number", ""),
        ("- 1\n", 1, 1, "expected a mapping", ""),
        ("workflow: Bad Name\n" + STEP[15:], 1, 1, "a workflow's name has small letters", ""),
        (HEAD + "  one: {type: agnt}\n", 3, 9, "unknown step type `agnt`", "Did you mean `agent`?"),
        (HEAD + "  one: {type: mpa}\n", 3, 9, "unknown step type `mpa`", "Did you mean `map`?"),
        (HEAD + "  one: {set: {a: 1}}\n", 3, 3, "the step has no `type`", "Available"),
        (HEAD + "  in: {type: transform, set: {a: 1}}\n", 3, 3, "`in` is a reserved word", ""),
        (HEAD + "  One: {type: transform, set: {a: 1}}\n", 3, 3, "a step's name has small letters", ""),
        (HEAD + "  one: {type: tool, tool: x, risk: read, wiht: {}}\n", 3, 42, "unknown field `wiht`", "`with`"),
        (HEAD + "  one: {type: tool, tool: x}\n", 3, 3, "`risk` is missing", "Add `risk: ...`"),
        (HEAD + "  one: {type: transform, set: {a: 1}, needs: [1]}\n", 3, 47, "expected a mapping", ""),
        (HEAD + "  one: {type: transform, set: {a: 1}, needs: [{step: b, wen: x}]}\n", 3, 57, "`wen`", "`when`"),
        (HEAD + "  one: {type: transform, set: {a: 1}, optional: 'yes'}\n", 3, 39, "expected true or false", ""),
        (HEAD + "  one: {type: transform, set: {a: 1}, join: most}\n", 3, 39, "expected `all`, `any` or", ""),
        (
            HEAD + "  one: {type: human_gate, approvers: a, subject: s, escalate: []}\n",
            3,
            53,
            "`escalate`: must not be empty",
            "",
        ),
        (HEAD + "  one: {type: agent, model: m, prompt: p, tools: []}\n", 3, 43, "must not be empty", ""),
    ],
)
def test_refuses_with_place_and_remedy(text, line, column, message, remedy):
    finding = only(text)
    assert message in finding.message
    assert remedy in finding.remedy
    assert (finding.file, finding.line, finding.column) == ("demo.yaml", line, column)


def test_every_fault_comes_at_once_in_the_order_of_the_file():
    found = faults(
        "workflow: A\nfoo: 1\nfoo: 2\nsteps:\n  a: {type: agent}\n  b: {type: x}\n  c: *z\nmax_parallel: 0\n"
    )
    assert [finding.line for finding in found] == [1, 2, 3, 5, 5, 6, 7, 8]


def test_scalars_follow_yaml_1_2():
    text = HEAD + (
        "  one:\n    type: transform\n"
        "    set: {a: yes, b: on, c: 1e3, d: 2026-11-29, e: 0o17, f: 0x1F, g: null, h: 12:30, i: 1_000,\n"
        "      j: -.5, k: NO, l: True, m: '0123', on: 1, n: =}\n"
    )
    assert load_text(text, "x", None).workflow.steps["one"].assign == {
        "a": "yes",
        "b": "on",
        "c": 1000.0,
        "d": "2026-11-29",
        "e": 15,
        "f": 31,
        "g": None,
        "h": "12:30",
        "i": "1_000",
        "j": -0.5,
        "k": "NO",
        "l": True,
        "m": "0123",
        "on": 1,
        "n": "=",
    }


def test_merge_keys_are_ordinary_keys():
    text = HEAD + "  one: {type: transform, set: {<<: {a: 1}}}\n"
    assert load_text(text, "x", None).workflow.steps["one"].assign == {"<<": {"a": 1}}


def test_files_that_are_not_utf8_or_absent_or_large_are_refused(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"workflow: demo\ndescription: \xe9\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * 1_000_001)
    for name, line, told in [
        ("latin", 2, "not UTF-8"),
        ("large", 1, "larger than 1,000,000"),
        ("no", 1, "cannot read"),
    ]:
        with pytest.raises(DefinitionError) as caught:
            load_file(tmp_path / f"{name}.yaml")
        assert (caught.value.findings[0].line, told in str(caught.value)) == (line, True)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300_000,
        "{a: " * 100_000,
        "- " * 100_000,
        "? " * 300_000,
        "\n".join(" " * depth + "a:" for depth in range(1000)),
        "a: &a [" + "*a," * 100_000 + "]",
        "\n".join("a: 1" for _ in range(100_000)),
        "a: " + "x" * 990_000,
        '"' * 990_000,
        "\n" * 990_000,
        "a: \x00",
    ],
)
def test_hostile_files_are_refused_quickly(text):
    began = time.monotonic()
    found = faults(text)
    assert time.monotonic() - began < 5
    assert 1 <= len(found) <= 200


def agent(prompt):
    return HEAD + f"  one: {{type: agent, model: m, prompt: 'file:{prompt}'}}\n"


def test_prompts_are_inlined_and_keep_their_positions(tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.md").write_text("first\nsay ${ input.x }\n")
    loaded = load_text(agent("prompts/a.md"), "demo.yaml", tmp_path)
    path = ("steps", "one", "prompt")
    assert loaded.workflow.steps["one"].prompt == "first\nsay ${ input.x }"
    assert list(loaded.files.values()) == ["first\nsay ${ input.x }"]
    finding = loaded.finding_inside("r", path, (" input.x ", 7), ("m", ""))
    assert (finding.file, finding.line, finding.column) == (str(tmp_path / "prompts" / "a.md"), 2, 14)


@pytest.mark.parametrize("name", ["../secret.md", "/etc/passwd", "prompts/../../secret.md", "link.md", ""])
def test_prompts_outside_the_folder_are_refused(tmp_path, name):
    folder = tmp_path / "workflows"
    folder.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    finding = only(agent(name), folder)
    assert "outside" in finding.message
    assert (finding.line, finding.column) == (3, 40)


def test_prompts_that_cannot_be_used_are_refused(tmp_path):
    (tmp_path / "large.md").write_text("x" * (MAX_PROMPT_BYTES + 1))
    (tmp_path / "latin.md").write_bytes(b"\xe9")
    assert "does not exist" in only(agent("none.md"), tmp_path).message
    assert "larger than" in only(agent("large.md"), tmp_path).message
    assert "not UTF-8" in only(agent("latin.md"), tmp_path).message
    assert "cannot be used here" in only(agent("none.md"), None).message


def test_models_are_frozen():
    loaded = load_text(STEP, "x", None)
    with pytest.raises(ValueError, match="frozen"):
        loaded.workflow.max_parallel = 3


def test_short_forms_become_one_form():
    text = HEAD + (
        "  a: {type: agent, model: m, prompt: p}\n"
        "  b: {type: transform, set: {x: 1}, needs: a, join: {quorum: 1}}\n"
        "  c: {type: human_gate, approvers: finance, subject: s, needs: [b, {step: a, when: 'true'}]}\n"
    )
    steps = load_text(text, "x", None).workflow.steps
    assert steps["a"].model == ("m",)
    assert (steps["b"].needs[0].step, steps["b"].join) == ("a", 1)
    assert (steps["c"].approvers, steps["c"].needs[1].when) == (("finance",), "true")
