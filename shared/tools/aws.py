"""AWS behind built-in tools: one request, without retries, and what its failure means to the cascade."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from botocore import exceptions as boto

from shared.clock import retry_after
from shared.errors import PermanentFailure, RateLimited, StepFailure, StepTimeout, TransientFailure, Unreached
from shared.tools.client import MARGIN

if TYPE_CHECKING:
    from collections.abc import Generator

    from shared.tools.means import Means
    from shared.tools.registry import Call

_SLOWER = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException"}
    | {"TooManyRequestsException", "LimitExceededException", "ProvisionedThroughputExceededException", "SlowDown"}
    | {"RequestLimitExceeded", "BandwidthLimitExceeded", "KMSThrottlingException", "PriorRequestNotComplete"}
)
_FORBIDDEN = frozenset(
    {"AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException", "Forbidden", "403"}
    | {"ForbiddenException", "NotAuthorized", "UnauthorizedException", "UnauthorizedOperation", "AllAccessDisabled"}
    | {"AWS.SimpleQueueService.AccessDenied", "KMSAccessDeniedException"}
)
_LATE = frozenset({"RequestTimeout", "RequestTimeoutException", "StatementTimeoutException"})
_WAKING = frozenset({"DatabaseResumingException", "EC2ThrottledException", "ResourceNotReadyException"})
"""What was asked is not awake yet: nothing has happened."""
_NOBODY = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.NoRegionError,
    boto.ProfileNotFound,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
)
_NOT_SENT = (boto.ConnectTimeoutError, boto.EndpointConnectionError, boto.ProxyConnectionError)


class Refused(PermanentFailure):
    """AWS refused the request for good; ``code`` is its error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Aws:
    """One AWS service, for the built-in tool ``tool``, by the clients of the host."""

    def __init__(self, means: Means, tool: str, service: str) -> None:
        self._means, self._tool, self._service = means, tool, service

    def ask(self, operation: str, call: Call, **request: Any) -> dict[str, Any]:
        """Send one request; what is None in it is left out. Raises StepFailure subclasses."""
        given = {name: value for name, value in request.items() if value is not None}
        with classified(self._tool):
            client = self._means.aws(self._service, max(call.timeout - MARGIN, call.timeout / 2))
            return getattr(client, operation)(**given)


@contextmanager
def classified(tool: str) -> Generator[None]:
    """Turn what boto3 raises in here into the failure that it means."""
    try:
        yield
    except boto.ClientError as error:
        raise _refusal(tool, error) from None
    except _NOBODY as error:
        told = f"{tool} needs AWS credentials and a region, and finds none: {str(error).rstrip('.')}."
        raise PermanentFailure(
            f"{told} In a run of a file, your own are used: aws configure, AWS_PROFILE, AWS_REGION."
        ) from None
    except _NOT_SENT as error:
        raise Unreached(f"{tool} cannot reach AWS: {error}") from None
    except boto.ReadTimeoutError:
        raise StepTimeout(f"{tool}: AWS did not answer in time.") from None
    except boto.ParamValidationError as error:
        raise PermanentFailure(f"{tool} cannot send these arguments: {error}") from None
    except boto.BotoCoreError as error:
        raise TransientFailure(f"{tool}: the connection to AWS was lost: {error}") from None


def _refusal(tool: str, error: boto.ClientError) -> StepFailure:
    answer = cast("dict[str, Any]", error.response)
    told: dict[str, Any] = answer.get("Error", {})
    code, meta = str(told.get("Code", "")), answer.get("ResponseMetadata", {})
    wish = retry_after(meta.get("HTTPHeaders", {}).get("retry-after"))
    text = f"{tool}: AWS answered {code or 'with an error'}: {told.get('Message') or 'no reason given'}"
    if code in _SLOWER:
        return RateLimited(text, retry_after=wish)
    if code in _LATE:
        return StepTimeout(text)
    if code in _FORBIDDEN:
        remedy = f'Add what it is about to tool_grants["{tool}"] in infra/settings.py and deploy'
        return Refused(f"{text} {remedy}; in a run of a file, your own credentials may not.", code)
    if code in _WAKING:
        return Unreached(text)
    if int(meta.get("HTTPStatusCode", 400)) >= 500:  # noqa: PLR2004 - the far side's own fault
        return TransientFailure(text, retry_after=wish)
    return Refused(text, code)
