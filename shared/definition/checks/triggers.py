"""Rules about what starts runs: one kind an entry, names, times, patterns, and inputs that fit."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from shared.definition.checks.arguments import input_faults
from shared.definition.checks.registry import Context, Told, rule
from shared.definition.cron import Cron
from shared.definition.expressions import ExpressionFailure, references
from shared.definition.names import listed, nearest
from shared.definition.patterns import faults, of_ours
from shared.definition.sites import ALWAYS, of_triggers, readable
from shared.definition.triggers import DEFAULT_INPUT, KINDS, BusEvent, Queue, Schedule
from shared.definition.validation import schema_complaint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.sites import Field
    from shared.definition.triggers import Kind, Start
    from shared.definition.yaml_tree import Path

LONGEST_QUEUE = 56
"""The most characters of a workflow's and a trigger's name together: with `signalbox-`, an environment's name of at
most 12, and a `-` after it and between them, a queue's has 80. Source: SQS quotas, "Queue name"."""


def _all(context: Context) -> Iterator[tuple[Path, Kind, Start]]:
    for index, entry in enumerate(context.workflow.triggers):
        for kind, start in entry.kinds():
            yield ("triggers", index, kind), kind, start


@rule("trigger_kind")
def trigger_kind(context: Context) -> Iterator[Told]:
    """Every entry is one trigger."""
    for index, entry in enumerate(context.workflow.triggers):
        found = [kind for kind, _ in entry.kinds()]
        if len(found) != 1:
            told = f"this entry is {listed(found)} at once" if found else "this entry starts nothing"
            yield ("triggers", index), told, f"Write one of {listed(KINDS)} an entry: `- queue: {{id: intake}}`."


@rule("trigger_id")
def trigger_id(context: Context) -> Iterator[Told]:
    """Every trigger has a name of its own: runs, addresses and queues are named after it."""
    seen = set[str]()
    for path, _, start in _all(context):
        if start.id in seen:
            yield (*path, "id"), f"another trigger is called `{start.id}` already", "Give each an id of its own."
        seen.add(start.id)


@rule("trigger_queue")
def trigger_queue(context: Context) -> Iterator[Told]:
    """The queue's name is not too long for SQS, and one field says whose its runs are."""
    for path, _, start in _all(context):
        length = len(context.workflow.workflow) + len(start.id)
        if isinstance(start, Queue) and length > LONGEST_QUEUE:
            told = f"the names of the workflow and of this trigger have {length} characters together"
            remedy = f"A queue is named after both: shorten one, to at most {LONGEST_QUEUE} together."
            yield (*path, "id"), told, remedy
        if isinstance(start, Queue) and start.tenant_by_group and "tenant" in start.model_fields_set:
            told = "`tenant` and `tenant_by_group` both say whose the runs are"
            yield (*path, "tenant_by_group"), told, "Remove one of them."


@rule("trigger_schedule")
def trigger_schedule(context: Context) -> Iterator[Told]:
    """A schedule names a time zone that exists and days that come."""
    for path, _, start in _all(context):
        if not isinstance(start, Schedule):
            continue
        if start.timezone not in zones():
            remedy = nearest(start.timezone, zones()) or "Use an IANA name such as Europe/Berlin, or UTC."
            yield (*path, "timezone"), f"there is no time zone `{start.timezone[:60]}`", remedy
        if Cron.parse(start.cron).never(context.today):
            yield (*path, "cron"), "no day from today on fits: it would never start a run", "Check day, month and year."


@cache
def zones() -> frozenset[str]:
    """Return the names of the time zones that EventBridge Scheduler knows too: those of IANA, nothing of this host."""
    mine = ("posix/", "right/")
    return frozenset(each for each in available_timezones() if not each.startswith(mine)) - {"Factory", "localtime"}


@rule("trigger_pattern")
def trigger_pattern(context: Context) -> Iterator[Told]:
    """EventBridge takes the pattern, and it does not match what the workflow's own runs cause."""
    for path, _, start in _all(context):
        if not isinstance(start, BusEvent):
            continue
        at = (*path, "pattern")
        found = [((*at, *below), told, remedy) for below, told, remedy in faults(start.pattern)]
        yield from found
        source = "" if found else of_ours(start.pattern)
        if source:
            told = f"this matches events of `{source}` that every run causes: runs would start runs without end"
            remedy = "Name another source, or in `detail` the `stateMachineArn` of a machine that is not Signalbox's."
            yield at, told, remedy


@rule("trigger_input")
def trigger_input(context: Context) -> Iterator[Told]:
    """What a trigger gives fits the workflow's input, as far as it is known before anything happens."""
    wanted = dict(context.workflow.input)
    if schema_complaint(wanted) is not None:
        return  # a rule of its own reports it
    given = {field.path: field for field in context.fields if field.trigger}
    for path, kind, start in _all(context):
        at = (*path, "input")
        if at in given and not _uses_others(given[at]):
            yield from input_faults(context, given[at], wanted, context.workflow.workflow)
        elif kind == "schedule" and start.input is None:
            missing = start.model_copy(update={"input": DEFAULT_INPUT[kind]})
            entry = context.workflow.triggers[int(path[1])].model_copy(update={kind: missing})
            (field,) = of_triggers((entry,), context.scopes[0])
            for _, told, remedy in input_faults(context, field, wanted, context.workflow.workflow, "`input` with "):
                yield path, told, remedy


def _uses_others(field: Field) -> bool:
    """Tell whether it uses names that are not known there, or cannot be read: rules of their own report that."""
    try:
        used = {one.root for site in readable(field) for one in references(site.expression)}
    except ExpressionFailure:
        return True
    return bool(used & (ALWAYS - field.names))
