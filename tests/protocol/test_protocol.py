"""The model of the protocol keeps every promise within its bounds, and breaks one if any of its rules is missing."""

import pytest

from tests.protocol.configurations import CONFIGURATIONS, SWITCHES, Configuration, Switch

# These tests compute all the time, and share the machine with others.
pytestmark = pytest.mark.timeout(300)

slow = pytest.mark.slow


@pytest.mark.parametrize(
    "configuration",
    [pytest.param(each, marks=slow if each.is_slow else (), id=each.name) for each in CONFIGURATIONS],
)
def test_every_promise_is_kept(configuration: Configuration) -> None:
    found = configuration.explore()
    assert found.broken is None, found.way
    assert found.states > 1000


@pytest.mark.parametrize(
    "switch",
    [pytest.param(each, marks=slow if each.configuration.is_slow else (), id=each.words) for each in SWITCHES],
)
def test_without_a_rule_a_promise_is_broken(switch: Switch) -> None:
    found = switch.configuration.explore(switch.rule)
    assert found.broken is not None
    assert found.broken.startswith(f"{switch.promise}:"), (found.broken, found.way)
