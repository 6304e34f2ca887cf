"""The model and the product say the same after every action of every trace."""

import pytest

from shared.ledger.record import replace
from shared.runtime.protocol import close_attempt
from tests.model.replay import PATH, Replay, Steps, traces

FAULTS = 2
AT_LEAST = {"read": 2_000_000, "reversible": 10_000, "irreversible": 10_000}


@pytest.mark.parametrize("risk", AT_LEAST)
def test_every_trace_of_the_model_is_one_of_the_product(risk):
    assert traces(Replay(Steps(risk)), FAULTS) > AT_LEAST[risk]


@pytest.mark.parametrize("risk", AT_LEAST)
def test_so_it_is_where_the_budget_only_just_fits(risk):
    assert traces(Replay(Steps(risk, limit=1)), FAULTS) > 4_000


class Fenceless(Replay):
    """Closes whatever attempt is open."""

    def closing(self, opened, outcome):
        def decide(seen):
            step = seen.step(PATH)
            return close_attempt(replace(opened, fence=step.fence, holder=step.holder), outcome, 0, seen)

        return decide


def test_a_product_without_a_fence_is_found_wanting():
    with pytest.raises(AssertionError):
        traces(Fenceless(Steps("read")), 1)
