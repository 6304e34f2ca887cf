"""Half of the graphs that are compared on moto; see ``moto_agrees``."""

from __future__ import annotations

import pytest
from moto_agrees import assert_agree, chunks


@pytest.mark.slow
@chunks(1)
def test_interpreter_and_moto_agree(moto, first):
    assert_agree(moto, first)
