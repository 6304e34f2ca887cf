"""The CDK app. ``-c env=NAME`` chooses an environment of infra/settings.py, further ``-c`` values override it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import App, Environment, Tags

from infra.settings import settings_for
from infra.stacks.api import ApiStack
from infra.stacks.data import DataStack
from infra.stacks.engine import EngineStack
from infra.stacks.workflows import WorkflowsStack, compile_all
from shared.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings
    from infra.stacks.workflows import Definition

ROOT = Path(__file__).resolve().parent


def build(app: App, *, settings: Settings, definitions: Sequence[Definition]) -> App:
    """Add the four stacks of one environment to ``app``. Nothing here calls AWS."""
    where = Environment(account=settings.account, region=settings.region)
    guard = settings.durable
    data = DataStack(app, f"{settings.prefix}-data", settings=settings, env=where, termination_protection=guard)
    engine = EngineStack(app, f"{settings.prefix}-engine", settings=settings, data=data, env=where)
    WorkflowsStack(
        app, f"{settings.prefix}-workflows", settings=settings, engine=engine, definitions=definitions, env=where
    )
    hooks = [(one.tenant, one.spec["secret"]) for each in definitions for one in each.triggers if one.kind == "webhook"]
    ApiStack(app, f"{settings.prefix}-api", settings=settings, data=data, sweep=engine.sweep, hooks=hooks, env=where)
    Tags.of(app).add("signalbox", settings.name)
    return app


def main() -> None:
    """Synthesise the environment that the context names."""
    app = App()
    context = {name: app.node.try_get_context(name) for name in CONTEXT}
    try:
        settings = settings_for(context.pop("env") or "local", context)
        definitions = compile_all(ROOT / "workflows", settings.servers)
    except (DefinitionError, ValueError) as error:
        # Ours to mend, not a fault of the program: the message says where and what.
        sys.exit(f"{error}")
    build(app, settings=settings, definitions=definitions).synth()


CONTEXT = (
    "env",
    "account",
    "region",
    "sender",
    "alarms_email",
    "public_url",
    "models_url",
    "log_level",
    "tool_settings",
    "tool_grants",
    "mcp_servers",
    "approvers",
)
"""The context values that mean something here."""

if __name__ == "__main__":
    main()
