"""Every attempt of a retried `.waitForTaskToken` task gets the token of the first attempt.

A late answer to the first attempt would then settle the second one. Inside Parallel it may even be
a sibling's token, because the branches share the context object that holds it.
"""

from scripts.local.corrections.upstream import rewrite, stepfunctions

NAME = "token_fresh"


def apply() -> None:
    """Draw a token for every attempt and keep it in a variable of this call."""
    rewrite(
        NAME,
        stepfunctions(),
        "_execute_task",
        ('    if is_callback:\n        ctx["Task"] = {"Token": new_uuid()}\n', ""),
        (
            '        ctx["State"]["RetryCount"] = sum(retry_counts.values())\n',
            (
                '        ctx["State"]["RetryCount"] = sum(retry_counts.values())\n'
                "        token = new_uuid()\n"
                "        if is_callback:\n"
                '            ctx["Task"] = {"Token": token}\n'
            ),
        ),
        ('resource, effective, ctx["Task"]["Token"], state_def)', "resource, effective, token, state_def)"),
    )
