"""``slack.post``: a message to a channel by its incoming webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import PermanentFailure
from shared.tools import client, guard
from shared.tools.builtin.http import encoded
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.tools.means import Means

HOSTS = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
"""Where webhooks are. Source: Slack API, "Sending messages using incoming webhooks"."""


class Posted(TypedDict):
    """The channel took the message."""

    posted: bool


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"slack.post": Slack(means).post}


class Slack:
    """Posts by these means. Raises StepFailure subclasses as ``client.send`` does."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def post(
        self,
        *,
        url: Annotated[str, Doc("The channel's incoming webhook, a secret.")],
        text: Annotated[str, Doc("The message; beside `blocks`, what notifications show.")],
        blocks: Annotated[list[Any] | None, Doc("The message as blocks of Slack's Block Kit.")] = None,
        call: Call,
    ) -> Posted:
        """Post a message to the Slack channel of an incoming webhook."""
        net = self._means.net(call)
        target = guard.target_of(url, net.allowed)
        if target.host not in HOSTS and target not in net.allowed:
            raise PermanentFailure(f"{target.host} is no host of Slack's webhooks. Use http.request for others.")
        body = encoded({"text": text, **({"blocks": blocks} if blocks else {})})
        headers = {"content-type": "application/json", "user-agent": "signalbox"}
        client.send(net, client.Ask("POST", url, headers, body, client.deadline_of(call.timeout)))
        return {"posted": True}
