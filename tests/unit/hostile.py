"""Loads and checks hostile workflow files, one after the other, under limits; prints what became of each as JSON.

Run as a program by test_hostile.py: time and memory are those of a process that does nothing else.
"""

import json
import resource
import sys
import time

from shared.definition.checks import check
from shared.definition.expressions import ExpressionFailure, evaluate
from shared.definition.loader import load_text
from shared.errors import DefinitionError

HEAD = "workflow: demo\ninput: {type: object, properties: {doc: {type: string}, n: {type: number}}}\nsteps:\n"
STEP = "{type: transform, set: {x: 1}}"
HUNDRED = f"[{', '.join(map(str, range(100)))}]"


def when(expression):
    return f'{HEAD}  a: {{type: transform, set: {{x: 1}}, when: "{expression}"}}\n'


def steps(count, step=STEP):
    return HEAD + "".join(f"  s{index}: {step}\n" for index in range(count))


def nested(levels):
    text = STEP
    for level in range(levels):
        text = f"{{type: map, over: [1], steps: {{s{level}: {text}}}}}"
    return f"{HEAD}  top: {text}\n"


def block_nested(levels):
    lines = ["  top:"]
    for level in range(levels):
        pad = " " * (4 * level)
        lines += [f"{pad}    type: map", f"{pad}    over: [1]", f"{pad}    steps:", f"{pad}      s{level}:"]
    return HEAD + "\n".join([*lines, " " * (4 * levels + 4) + "  type: nothing", ""])


def nested_macros(depth):
    text = "true"
    for level in range(depth):
        text = f"{HUNDRED}.all(a{level}, {text})"
    return text


def dense(count):
    """Return a graph in which every step needs all before it."""
    lines = [
        f"  s{one}: {{type: transform, set: {{x: 1}}, needs: [{', '.join(f's{i}' for i in range(one))}]}}\n"
        for one in range(count)
    ]
    return HEAD + "".join(lines)


FILES = {
    "flow nesting": "[" * 400_000,
    "map nesting": "{a: " * 200_000,
    "sequence nesting": "- " * 490_000,
    "sequence of nothing": "- \n" * 330_000,
    "question marks": "? " * 490_000,
    "block nesting": "\n".join(" " * depth + "a:" for depth in range(1_300)),
    "billion laughs": "a: &a [x,x]\n"
    + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "aliases": "a: &a [" + "*a," * 300_000 + "]",
    "merge keys": "workflow: demo\nsteps: {<<: &x {a: 1}, <<: *x}",
    "duplicate keys": "a: 1\n" * 190_000,
    "huge key": "x" * 990_000 + ": 1",
    "huge string": "workflow: " + "x" * 980_000,
    "huge description": "description: " + "x" * 980_000 + "\n" + when("fals"),
    "open quote": '"' + "x" * 980_000,
    "quotes": '"' * 980_000,
    "blank lines": "\n" * 990_000,
    "too large": "#" * 1_000_001,
    "null byte": "workflow: a\x00b",
    "tags": "a: !!python/object/apply:os.system [id]\n",
    "many documents": "---\na: 1\n" * 100_000,
    "long number": "workflow: demo\nsteps: " + "9" * 900_000,
    "10,000 steps": steps(10_000),
    "2,001 steps": steps(2_001),
    "10,000 wrong steps": steps(10_000, "{type: x}"),
    "2,000 steps with five faults": steps(2_000, "{typ: x, need: [1, 2], retry: 3, budget: 4, when: 5}"),
    "2,000 unknown names": steps(2_000, "{type: transform, set: {x: 1}, needs: nobody, fallback: none}"),
    "1,500 wrong expressions": steps(1_500, "{type: transform, set: {x: '${ inptu.n }'}}"),
    "a cycle of 2,000": steps(1_999) + f"  s1999: {STEP[:-1]}, needs: s1999}}\n",
    "dense graph": dense(330) + f"  bad: {STEP[:-1]}, needs: nobody}}\n",
    "map in map": nested(9),
    "map in map in block style": block_nested(20),
    "map in map, very deep": nested(2_000),
    "odd names": HEAD
    + "".join(
        f'  "{name}": {STEP}\n' for name in ("a b", "ä", "../x", "$(id)", "a\\n", "\\u202e", "é" * 99, "__proto__")
    ),
    "odd workflow": f"workflow: '../../x'\nsteps: {{a: {STEP}}}",
    "deep parentheses": when("(" * 50_000 + "true" + ")" * 50_000),
    "parentheses within the length": when("(" * 1_900 + "true" + ")" * 1_900),
    "long sum": when(" + ".join(["1"] * 900) + " > 0"),
    "long condition": when(" || ".join(["input.n > 1.0"] * 20_000)),
    "deep not": when("!" * 3_900 + "input.n"),
    "many brackets": when("[" * 1_900 + "]" * 1_900),
    "many ternaries": when("input.n > 1.0 ? " * 200 + "true" + " : false" * 200),
    "doubling": f"{HEAD}  a: {{type: transform, set: {{x: \"${{ ['ab']{'.map(x, x + x)' * 100} }}\"}}}}\n",
    "10,000 slots": f'{HEAD}  a: {{type: transform, set: {{x: "{"${ input.n } " * 10_000}"}}}}\n',
    "open slots": f'{HEAD}  a: {{type: transform, set: {{x: "{"${ " * 3_000}"}}}}\n',
    "many conditions": HEAD
    + "  a: "
    + STEP
    + "\n  b: {type: transform, set: {x: 1}, needs: ["
    + ", ".join(["{step: a, when: input.n > 1.0}"] * 6_000)
    + "]}\n",
    "a route of many cases": when(
        " && ".join(f"(input.n > {one}.0 || input.n < {one}.0)" for one in range(100)) + " && fals"
    ),
    "regular expression": when(f"input.doc.matches('{'(a*)*' * 300}b') == 1"),
    "recursive schema": HEAD.replace("{type: object", "{$ref: '#', $defs: {a: {$ref: '#/$defs/b'}}, type: object")
    + f"  a: {STEP}\n  b: 1\n",
    "schema of 20,000 names": "workflow: demo\ninput: {type: object, properties: {"
    + ", ".join(f"p{one}: {{}}" for one in range(20_000))
    + f"}}}}\nsteps: {{a: {STEP}}}\n",
    "large literal": f"{HEAD}  a: {{type: transform, set: {{x: {'h' * 900_000}}}}}\n",
    "deep schema": HEAD + "  a: {type: transform, set: {x: 1}, output: " + "{items: " * 44 + "3" + "}" * 44 + "}\n",
}
EXPRESSIONS = {
    "doubling": "['ab']" + ".map(x, x + x)" * 60,
    "doubling lists": "[[1]]" + ".map(x, x + x)" * 60,
    "tripling maps": "[1]" + ".map(x, {'a': x, 'b': x, 'c': x})" * 30,
    "nested loops": nested_macros(6),
    "nested lists": f"{HUNDRED}.map(a, {HUNDRED}.map(b, {HUNDRED}.map(c, a + b + c)))",
    "deep parentheses": "(" * 1_900 + "1" + ")" * 1_900,
    "long": "1 + " * 100_000 + "1",
    "regular expression": f"'{'a' * 3_000}b'.matches('(a*)*c')",
}


def measured(work):
    began = time.process_time()
    told = work()
    seconds = time.process_time() - began
    return {**told, "seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def refused(text):
    try:
        found = check(load_text(text, "x.yaml", None, strict=False), {}, frozenset())
    except DefinitionError as error:
        found = error.findings
    first = found[0] if found else None
    shown = [first.line, first.column, first.message[:200], first.remedy[:200]] if first else None
    longest = max((len(str(one)) for one in found), default=0)
    errors = sum(one.severity == "error" for one in found)
    return {"errors": errors, "first": shown, "longest": longest, "last": found[-1].message[:100] if found else ""}


def failed(expression):
    try:
        return {"value": len(str(evaluate(expression, {})))}
    except ExpressionFailure as error:
        return {"told": str(error)}


def calibrate():
    """Take the time of a fixed piece of work, about a tenth of a second on a machine that has nothing else to do."""
    began = time.process_time()
    total = 0
    for number in range(1_500_000):
        total += number & 3
    return time.process_time() - began


def main():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    refused(when("input.n > 1.0"))
    before = measured(dict)["megabytes"]
    slowness = calibrate()
    found = {name: measured(lambda text=text: refused(text)) for name, text in FILES.items()}
    told = {name: measured(lambda text=text: failed(text)) for name, text in EXPRESSIONS.items()}
    json.dump({"before": before, "unit": max(slowness, calibrate()), "files": found, "expressions": told}, sys.stdout)


if __name__ == "__main__":
    main()
