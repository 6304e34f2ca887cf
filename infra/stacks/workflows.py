"""The workflows: every file in workflows/ compiled to a machine, published as a version."""

# CDK's classes name parameters differently from the interfaces they implement.
# pyright: reportArgumentType=false

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aws_cdk import CfnOutput, CustomResource, Duration, Stack
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm

from infra.constructs.machine import machine
from infra.constructs.triggers import Triggers
from infra.stacks.engine import version_parameter
from shared import compiler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_stepfunctions as sfn
    from constructs import Construct

    from infra.settings import Settings
    from infra.stacks.engine import EngineStack

PLACEHOLDERS = ("StepFunction", "ControlFunction", "GateFunction")


@dataclass(frozen=True, slots=True)
class Definition:
    """One compiled workflow: its file's text, its ASL and manifest as canonical JSON texts, its content hash.

    ``triggers`` are what starts it; the manifest holds the same.
    """

    name: str
    source: str
    asl: str
    manifest: str
    hash: str
    triggers: tuple[compiler.Trigger, ...] = ()


def compile_all(folder: Path, servers: frozenset[str] | None = None) -> tuple[Definition, ...]:
    """Compile every ``*.yaml`` in ``folder``, by name. Raises DefinitionError with all findings of a refused file.

    ``servers`` are the MCP servers that they may name; None leaves them unchecked. Raises ValueError for two names
    that would make one machine.
    """
    compiled = tuple(_compile(path, servers) for path in sorted(folder.glob("*.yaml")))
    known: dict[str, str] = {}
    for one in compiled:
        other = known.setdefault(_title(one.name), one.name)
        if other != one.name:
            raise ValueError(
                f"workflows {other} and {one.name}: both would be the machine {_title(one.name)}. Rename one of them: "
                "their names must differ in more than hyphens, underscores and case."
            )
    return compiled


def _compile(path: Path, servers: frozenset[str] | None) -> Definition:
    compiled = compiler.compile_file(path, servers=servers)
    return Definition(
        name=compiled.name,
        source=path.read_text(encoding="utf-8"),
        asl=_canonical(compiled.asl),
        manifest=_canonical(compiled.manifest.to_json()),
        hash=compiled.hash,
        triggers=compiled.manifest.triggers,
    )


def _canonical(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class WorkflowsStack(Stack):
    """One machine a workflow. The publisher registers each deployed revision as an immutable version."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        engine: EngineStack,
        definitions: Sequence[Definition],
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        self.add_stack_dependency(engine, "reads the function versions that engine puts into parameters")
        self.settings = settings
        self.engine = engine
        self._substitutions = self._read_versions()
        self._folder = Path(tempfile.mkdtemp(prefix="signalbox-definitions-"))
        for definition in definitions:
            self._workflow(definition)

    def _read_versions(self) -> dict[str, str]:
        read = ssm.StringParameter.value_for_string_parameter
        return {each: read(self, version_parameter(self.settings, each)) for each in PLACEHOLDERS}

    def _workflow(self, definition: Definition) -> None:
        title = _title(definition.name)
        made = machine(
            self,
            f"{self.settings.machines}{title}",
            settings=self.settings,
            role=self.engine.machine_role,
            definition=definition.asl,
            substitutions=self._substitutions,
        )
        version = self._publish(definition, title, made)
        if definition.triggers:
            triggers = Triggers(self, f"{title}Triggers", engine=self.engine, definition=definition)
            triggers.node.add_dependency(version)  # nothing starts a workflow that has no version yet
        output = CfnOutput(self, f"{title}Output", value=made.state_machine_arn)
        output.override_logical_id(f"Machine{title}")

    def _publish(self, definition: Definition, title: str, made: sfn.StateMachine) -> CustomResource:
        asset = assets.Asset(self, f"{title}Definition", path=str(self._write(definition)))
        return CustomResource(
            self,
            f"{title}Version",
            resource_type="Custom::SignalboxVersion",
            service_token=self.engine.publish.function.function_arn,
            # The publisher answers within its own minute, or never will.
            service_timeout=Duration.minutes(2),
            properties={
                "Workflow": definition.name,
                "Hash": definition.hash,
                "MachineArn": made.state_machine_arn,
                "RevisionId": made.state_machine_revision_id,
                "AssetBucket": asset.s3_bucket_name,
                "AssetKey": asset.s3_object_key,
            },
        )

    def _write(self, definition: Definition) -> Path:
        path = self._folder / f"{definition.name}.json"
        # The manifest as text: what is hashed, stored and read is the same bytes.
        path.write_text(_canonical({"definition": definition.source, "manifest": definition.manifest}), "utf-8")
        return path


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", name))
