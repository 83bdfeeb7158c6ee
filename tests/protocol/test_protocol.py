"""The model of the protocol keeps every promise within its bounds, and breaks one if any of its rules is missing."""

import pytest

from tests.protocol.configurations import CONFIGURATIONS, SWITCHES, Configuration, Switch

# These tests compute for minutes; `test_likeness.py`, which is quick, compares the model with the real scripts.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.name)
def test_every_promise_is_kept(configuration: Configuration) -> None:
    found = configuration.explore()
    assert found.broken is None, found.way
    assert found.states > 1000


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda each: each.words)
def test_without_a_rule_a_promise_is_broken(switch: Switch) -> None:
    found = switch.configuration.explore(switch.rule)
    assert found.broken is not None
    assert found.broken.startswith(f"{switch.promise}:"), (found.broken, found.way)
