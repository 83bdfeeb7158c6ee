"""The model of a quorum breaks no promise, unless a rule is left out."""

import pytest

from tests.quorum.model import Rules, explore

# These tests compute all the time, and share the machine with others.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.slow
def test_nothing_goes_wrong() -> None:
    wrong, worlds = explore(Rules())
    assert not wrong
    assert worlds > 100_000  # With fewer states, the model would lack some events.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        (Rules(abstains=False), "two hold the lock"),
        (Rules(subtracts=False), "two hold the lock"),
        (Rules(raises=False), "a token is not above the last"),
    ],
    ids=str,
)
def test_without_a_rule_something_does(rules: Rules, wrong: str) -> None:
    assert explore(rules)[0] == wrong
