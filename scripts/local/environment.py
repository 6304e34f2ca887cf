"""The environment of everything the local cloud starts: built from nothing, so no secret of the user's gets in.

Lambda functions inherit the emulator's environment. Whatever is not named here does not exist for
them, and the AWS variables make sure that neither they nor the CDK can reach a real account.
"""

import os
import sys
from pathlib import Path

ACCOUNT = "000000000000"
REGION = "us-east-1"
HOST = "127.0.0.1"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean(home: Path) -> dict[str, str]:
    """The variables every process gets; `home` stands in for the user's home and temporary folder."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), _SYSTEM_PATH]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }


def aws(endpoint: str) -> dict[str, str]:
    """Variables that tie every AWS client to `endpoint` with credentials that are worth nothing."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "CDK_DEFAULT_ACCOUNT": ACCOUNT,
        "CDK_DEFAULT_REGION": REGION,
    }
