"""
An editor that asks jedi completes the name that ``async with ... as`` gives.

jedi is in the environment of `make lint`, and not in that of the tests, where there is no such test to skip.
"""

from importlib.util import find_spec

import pytest

from tests.docs.pages import ROOT

OF_A_LEASE = {"check", "lost", "release", "remaining", "renew", "token"}

if find_spec("jedi") is not None:
    import jedi

    @pytest.mark.parametrize(
        ("block", "names"),
        [
            ("locks", {"lock", "multi", "statistics"}),
            ("locks.lock('a')", OF_A_LEASE),
            ("locks.lock('a').hold(wait=1)", OF_A_LEASE),
            ("locks.fair_lock('a')", OF_A_LEASE),
            ("locks.read_write_lock('a').read", OF_A_LEASE),
            ("locks.semaphore('a', 2)", OF_A_LEASE),
            ("locks.semaphore('a', 2).hold()", OF_A_LEASE),
            ("locks.multi('a', 'b')", {"check", "leases", "release", "tokens"}),
            ("locks.multi('a', 'b').hold()", {"check", "leases", "release", "tokens"}),
            ("locks.leader('a')", {"check", "lost", "run", "start"}),
            ("locks.once('a', keep=1)", {"done", "failure", "result"}),
        ],
    )
    def test_the_value_of_a_block_is_completed(block: str, names: set[str]) -> None:
        source = "import aiolock\nasync def f(locks: aiolock.LockClient):\n"
        source += f"    async with {block} as given:\n        given."
        completed = {each.name for each in jedi.Script(source, project=jedi.Project(ROOT)).complete()}
        assert names <= completed

    @pytest.mark.parametrize(
        ("start", "names"),
        [
            ("locks.", {"lock", "multi", "statistics"}),
            ("locks.lock('a').", {"acquire", "hold", "try_lock"}),
            ("locks.lock('a').acquire().", OF_A_LEASE),
            ("with locks.lock('a') as given:\n        given.", OF_A_LEASE),
            ("with locks.multi('a').hold() as given:\n        given.", {"check", "leases", "release", "tokens"}),
        ],
    )
    def test_the_members_of_the_blocking_client_are_completed(start: str, names: set[str]) -> None:
        source = f"import aiolock.blocking\ndef f(locks: aiolock.blocking.LockClient):\n    {start}"
        completed = {each.name for each in jedi.Script(source, project=jedi.Project(ROOT)).complete()}
        assert names <= completed
