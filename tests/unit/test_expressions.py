import math
import subprocess
import sys

import pytest

from shared.definition import truth
from shared.definition.checker import Names, check_expression
from shared.definition.expressions import (
    ExpressionFailure,
    Slot,
    condition,
    evaluate,
    parts,
    references,
    render,
    slots,
    template_references,
)
from shared.definition.growth import growth
from shared.definition.syntax import parse
from shared.definition.types import DYN, STRING, TypeSpace
from shared.errors import PermanentFailure, StepFailure


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("input.n + 1", 3),
        ("input.n < 2.5", True),
        ("input.s + '!'", "é!"),
        ("input.list.map(x, x * 2)", [2, 4]),
        ("{'a': input.n, 'b': null}", {"a": 2, "b": None}),
        ("has(input.missing) ? 1 : 0", 0),
        ("steps.a.output.total >= 10.0", True),
        ("input", {"n": 2, "s": "é", "list": [1, 2]}),
        ('steps["a"].status', "completed"),
    ],
)
def test_evaluates_to_plain_json(expression, value):
    names = {
        "input": {"n": 2, "s": "é", "list": [1, 2]},
        "steps": {"a": {"output": {"total": 10}, "status": "completed"}},
    }
    assert evaluate(expression, names) == value


def test_a_number_that_happens_to_be_whole_takes_part_in_fractional_arithmetic():
    assert evaluate("amount * 1.5 + rate", {"amount": 4, "rate": 0.5}) == 6.5
    assert evaluate("1 + 2", {}) == 3
    assert isinstance(evaluate("count + 1", {"count": 1}), int)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("input.missing", "missing"),
        ("nobody", "nobody"),
        ("1 / 0", "divide by zero"),
        ("1.0 / 0.0", "not JSON"),
        ("0.0 / 0.0", "not JSON"),
        ("timestamp('2026-01-01T00:00:00Z')", "not JSON"),
        ("{1: 2}", "not JSON"),
        ("b'x'", "bytes"),
        ("type(1)", "not JSON"),
        ("1 +", "1:4"),
        ("'a' + 1", "'a' + 1"),
        ("input.all(x, " * 60 + "true" + ")" * 60, "input.all"),
        ("a" + ".b" * 5000, "a.b.b"),
    ],
)
def test_failures_are_permanent_and_name_the_expression(expression, told):
    with pytest.raises(ExpressionFailure, match=r".") as caught:
        evaluate(expression, {"input": {}})
    assert told in str(caught.value)
    assert isinstance(caught.value, PermanentFailure)
    assert isinstance(caught.value, StepFailure)
    assert len(str(caught.value)) < 1000


def test_a_runaway_expression_stops_by_itself():
    hundred = "[" + ",".join("1" * 100) + "]"
    runaway = "true"
    for name in "abcdef":
        runaway = f"{hundred}.all({name}, {runaway})"
    with pytest.raises(ExpressionFailure):
        evaluate(runaway, {})


def test_loop_is_a_name_although_cel_reserves_it():
    names = {"loop": {"iteration": 2, "previous": None}, "x": {"loops": 1}}
    assert evaluate("loop.iteration + x.loops", names) == 3
    assert evaluate("loop.previous == null ? 'loop' : r'loop'", names) == "loop"
    assert [one.root for one in references("'loop' + loop.previous // loop")] == ["loop"]
    with pytest.raises(ExpressionFailure, match='No value with name "loop"'):
        evaluate("loop.iteration", {})
    assert evaluate("x.loop + loop", {"x": {"loop": 1}, "loop": 2}) == 3


@pytest.mark.parametrize(
    ("expression", "copies"),
    [
        ("input", 1),
        ("[x, x, {'a': x}]", 4),
        ("x.map(a, a + a)", 2),
        ("x.map(a, a + a).map(b, [b, b, b])", 6),
        ("x.map(a, y.map(b, a + b + a))", 3),
        ("x.filter(a, a > 1).exists(b, b > 2)", 1),
        ("x > 1 ? [x, x] : [x, x, x]", 3),
        ("size(x + x) + 1", 2),
    ],
)
def test_growth_counts_the_copies_of_data(expression, copies):
    assert growth(parse(expression)) == copies


def test_what_would_multiply_its_data_beyond_reason_is_refused_when_it_runs():
    with pytest.raises(ExpressionFailure, match="copies of its data"):
        evaluate("['ab']" + ".map(x, x + x)" * 11, {})
    with pytest.raises(ExpressionFailure, match="may have"):
        evaluate("1 + " * 2000 + "1", {})
    assert evaluate("['ab'].map(x, x + x).map(x, x + x)", {}) == ["abababab"]


@pytest.mark.parametrize(
    ("conditions", "never"),
    [
        (["true"], False),
        (["false"], True),
        (["!true"], True),
        (["a && !a"], True),
        (["a || !a"], False),
        (["has(a.b) && !a.b"], False),
        (["a > 1 && a < 1.5"], False),
        (["a > 1 && a <= 1"], True),
        (["a >= 1 && a <= 1"], False),
        (["a >= 1 && a <= 1 && a != 1"], False),
        (["a == 1 && a != 1.0"], True),
        (["a == 'x' && a == 'y'"], True),
        (["a in ['x', 'y'] && a != 'x' && a != 'y'"], True),
        (["a in ['x', 'y'] && !(a in ['x'])"], False),
        (["a == 3 && 3 > a"], True),
        (["1 == 2 || 'a' == 'b'"], True),
        (["1 == 1 && true"], False),
        (["a ? false : false"], True),
        (["a ? b : false"], False),
        (["a == null && a == 'x'"], True),
        (["a == true && a == 1"], True),
        (["f.size() > 1 && f.size() < 0"], True),
        (["a > 5", "!(a > 1)"], True),
        (["kind == 'c'"], True),
        (["kind != 'a' && kind != 'b'"], True),
        (["share > 1"], True),
        (["share >= 1"], False),
        (["fixed == 'other'"], True),
    ],
)
def test_never_is_told_only_where_it_is_sure(conditions, never):
    schemas = {"kind": {"enum": ["a", "b"]}, "share": {"minimum": 0, "maximum": 1}, "fixed": {"const": "this"}}
    nodes = [(parse(one), True) for one in conditions]
    assert truth.never(nodes, lambda node: schemas.get(node.name)) is never


def test_a_condition_must_be_true_or_false():
    assert condition("n > 1", {"n": 2}) is True
    with pytest.raises(ExpressionFailure, match="must be true or false, not a string"):
        condition("'yes'", {})


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${ n }", 2),
        ("  ${ n }\n", 2),
        ("n = ${ n }!", "n = 2!"),
        ("${ n }${ n }", "22"),
        ("$${ n }", "${ n }"),
        ("$$${ n }", "$${ n }"),
        ("cost: $5 {x}", "cost: $5 {x}"),
        ("${ {'a': {'b': '}'}}.a.b }", "}"),
        ('${ "}" + s }', "}text"),
        ("${ r'\\d}' + s }", "\\d}text"),
        ("${ '''it's }''' }", "it's }"),
        ("a ${ 1 // } a comment\n } b", "a 1 b"),
        ("${ o } ${ b } ${ z }", '{"é": [1]} true null'),
        ({"k": ["${ n }", {"deep": "${ s }"}], "n": 1}, {"k": [2, {"deep": "text"}], "n": 1}),
        (None, None),
    ],
)
def test_renders_templates(template, value):
    assert render(template, {"n": 2, "s": "text", "o": {"é": [1]}, "b": True, "z": None}) == value


@pytest.mark.parametrize("template", ["${ n", "a ${ 'x } b", "${ {'a': 1 }"])
def test_an_unclosed_slot_is_refused_where_it_begins(template):
    with pytest.raises(ExpressionFailure, match="never closed") as caught:
        render(template, {"n": 1})
    assert 0 <= caught.value.offset < len(template)


def test_values_are_never_read_as_templates_again():
    assert render("${ s } and x ${ s }", {"s": "${ 1 + 1 }"}) == "${ 1 + 1 } and x ${ 1 + 1 }"


def test_slots_know_where_they_stand():
    assert parts("ab ${ x } c") == ("ab ", Slot(" x ", 5), " c")
    assert list(slots({"a": ["${ y }"]})) == [(("a", 0), Slot(" y ", 2))]


def test_references_find_names_fields_and_leave_bound_variables_out():
    found = references(
        'steps["x"].output.list.exists(a, a.b > limit.z) && has(steps.q.output.z) && input[steps.k.output]'
    )
    assert [(one.root, one.fields) for one in found] == [
        ("steps", ("x", "output", "list")),
        ("limit", ("z",)),
        ("steps", ("q", "output", "z")),
        ("input", ()),
        ("steps", ("k", "output")),
    ]
    assert [one.root for one in template_references({"a": "${ p } and ${ q.r }", "b": [1, "${ {'k': s} }"]})] == [
        "p",
        "q",
        "s",
    ]


def test_importing_the_runtime_part_loads_no_heavy_library():
    code = (
        "import sys, shared.definition.expressions, shared.tools.registry\n"
        "heavy = 'pydantic', 'jsonschema', 'yaml', 'google.protobuf', 'boto3', 'cel_expr_python'\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- static types -----------------------------------------------------------------------------------------------


def names():
    space = TypeSpace()
    output = space.of_schema(
        {
            "type": "object",
            "properties": {
                "score": {"type": "number"},
                "count": {"type": "integer"},
                "name": {"type": "string"},
                "maybe": {"type": ["number", "null"]},
                "kind": {"enum": ["a", "b"]},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
                "rates": {"type": "object", "additionalProperties": {"type": "number"}},
                "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                "anything": {},
                "tree": {"$ref": "#/$defs/tree"},
            },
            "$defs": {
                "line": {"type": "object", "properties": {"quantity": {"type": "integer"}}},
                "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}},
            },
        }
    )
    steps = space.message({"a": space.message({"output": output, "status": STRING})})
    return Names(space, {"steps": steps, "input": DYN})


@pytest.mark.parametrize(
    "expression",
    [
        "steps.a.output.score < 5000",
        "5000 > steps.a.output.score && steps.a.output.score != -1 && steps.a.output.score >= 0x10",
        "steps.a.output.score in [1, 2]",
        "steps.a.output.count < 5",
        "steps.a.output.maybe == null || steps.a.output.maybe > 3",
        "steps.a.output.kind == 'a'",
        "steps.a.output.lines.exists(l, l.quantity > 3)",
        "steps.a.output.rates['x'] > 1",
        "steps.a.output.matrix[0][1] > 1.0",
        "steps.a.output.anything.deep == 1",
        "has(steps.a.output) && has(steps.a.output.score)",
        "steps.a.output.tree.next.next == 1",
        "input.whatever.it == 2",
        "steps.a.status == 'completed'",
    ],
)
def test_conditions_that_fit_are_bool(expression):
    checked = check_expression(expression, names())
    assert checked.problems == ()
    assert checked.type.name() == "BOOL"


@pytest.mark.parametrize(
    ("expression", "offset", "message", "remedy"),
    [
        ("steps.a.output.scor > 1.0", 14, "undefined field 'scor'", "Did you mean `score`?"),
        ("steps.a.output.name > 1.0", 20, "`string > double` does not fit", "one type"),
        ("steps.a.output.score + 1 > 2.0", 21, "`double + int` does not fit", "1.0"),
        ("steps.a.output.count < 5.5", 21, "`int < double` does not fit", "double(...)"),
        ("steps.a.output['name'] == 'x'", 14, "`object[string]` does not fit", "`.name`"),
        ("steps.a.output.name + 1", 20, "`string + int` does not fit", "string(...)"),
        ("steps.a.output.lines[0].quantiy == 1", 23, "undefined field 'quantiy'", "Did you mean `quantity`?"),
        ("inptu.x", 0, "unknown name 'inptu'", "Did you mean `input`?"),
        ("1 +", 3, "ends too early", "Complete it"),
        ("(1 + 2", 6, "a `)` is missing", "Add the `)`"),
        ("1 + 2)", 5, "`)` cannot stand here", "one ) too many"),
        ("true and true", 5, "`and` cannot stand here", "`&&`"),
        ("true or true", 5, "`or` cannot stand here", "`||`"),
        ("not true", 4, "`true` cannot stand here", "`!`"),
        ("not(true)", 0, "unknown function 'not'", "`!`"),
        ("1 if true else 2", 2, "`if` cannot stand here", "condition ? one : other"),
        ("steps.a.output.name is null", 20, "`is` cannot stand here", "value == null"),
        ("1 <> 2", 3, "`>` cannot stand here", "`!=`"),
        ("len(steps.a.output.name) > 1", 0, "unknown function 'len'", "size(...)"),
        ("steps.a.output.name.upper() == 'X'", 20, "unknown function 'upper'", "in a tool"),
        ("contains(steps.a.output.name, 'x')", 0, "unknown function 'contains'", "text.contains(...)"),
        ("steps.a.output.lines.length > 1", 20, "list(object)", "size(...)"),
        ("now() > timestamp('2026-01-01T00:00:00Z')", 0, "unknown function 'now'", "no clock"),
        ("steps.a.output.name == None", 23, "unknown name 'None'", "`null`"),
        ("steps.a.output.score ? 1 : 2", 21, "double ? int : int", "a condition, true or false"),
        ("true ? 1 : 1.0", 5, "bool ? int : double", "1.0"),
        ("timestamp('2026-01-01T00:00:00Z') + 1", 34, "does not fit", 'duration("24h")'),
        ("true &&\n steps.a.output.scor > 1", 23, "undefined field 'scor'", "score"),
        ("steps.a.output.score < 5000 && steps.a.output.nam == 'x'", 45, "undefined field 'nam'", "name"),
    ],
)
def test_what_does_not_fit_is_told_with_place_and_remedy(expression, offset, message, remedy):
    (problem,) = check_expression(expression, names()).problems
    assert problem.offset == offset
    assert message in problem.message
    assert remedy in problem.remedy


def test_a_macro_with_too_little_is_shown_as_it_is_written():
    problems = check_expression("steps.a.output.lines.all(one)", names()).problems
    remedies = {problem.message: problem.remedy for problem in problems}
    assert remedies["unknown function 'all'"] == "Write `list.all(one, condition)`."


def test_only_the_first_place_that_cannot_be_read_is_told():
    (problem,) = check_expression("steps.a.output.name = 'x'", names()).problems
    assert (problem.offset, problem.message, problem.remedy) == (20, "`=` cannot stand here", "Compare with `==`.")


def test_several_problems_of_one_expression_come_at_once():
    checked = check_expression("steps.a.output.scor > 1.0 && steps.a.output.name + 1 == 'x'", names())
    assert len(checked.problems) == 2


def test_property_names_that_cel_cannot_read_make_the_object_dynamic():
    space = TypeSpace()
    shape = space.of_schema({"type": "object", "properties": {"invoice-no": {"type": "string"}, "in": {}}})
    assert check_expression("o['invoice-no'] == 'x'", Names(space, {"o": shape})).problems == ()


def test_results_are_finite_numbers():
    assert math.isfinite(evaluate("1.0 / 3.0", {}))
