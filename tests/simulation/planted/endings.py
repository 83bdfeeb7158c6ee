"""Faults of the ways in which clients and processes end, and of event loops that begin each task at once."""

from tests.simulation.planted.fault import Fault

_SHUTDOWN = "--on one --profile shutdown"
_CLOSES = "--on one --profile calm --act closes"
_FORKS = "--profile forks"
_EAGER = "--on one --profile calm"
_IN_TIME = "the task waits before anything can go wrong"

ENDINGS = (
    Fault(
        "a forked child writes on its parent's connections",
        "_redis/connection.py",
        "if not self.connected or Lineage.forks != self._forks or self._writer is None",
        "if not self.connected or self._writer is None",
        _FORKS,
    ),
    Fault(
        "a forked child closes its parent's connections",
        "_redis/connection.py",
        "            if Lineage.forks == self._forks:\n                if self._writer",
        "            if True:\n                if self._writer",
        _FORKS,
    ),
    Fault(
        "a forked child makes its parent's connections again",
        "_redis/connection.py",
        "        if self.closed or Lineage.forks != self._forks or self._loop.is_closed():\n",
        "        if self.closed or self._loop.is_closed():\n",
        _FORKS,
    ),
    Fault(
        "a forked child asks the Sentinels on its parent's connections",
        "_redis/sentinel/ask.py",
        "        if Lineage.forks != self._forks:\n",
        "        if False:\n",
        f"{_FORKS} --on sentinel",
    ),
    Fault(
        "a forked child closes its parent's connections to Sentinels",
        "_redis/sentinel/ask.py",
        "        if self._connection is not None and Lineage.forks == self._forks:\n",
        "        if self._connection is not None:\n",
        f"{_FORKS} --on sentinel",
    ),
    Fault(
        "a connection ends when asyncio.run cancels it, though releases are yet to be sent",
        "_redis/connection.py",
        "        if self.closed or self._leaving or Lineage.forks != self._forks:\n            return False\n",
        "        if True:\n            return False\n",
        _SHUTDOWN,
    ),
    Fault(
        "closing does not wait for the answers to releases",
        "_core/session.py",
        "                await self._drained()\n",
        "                pass\n",
        _SHUTDOWN,
    ),
    Fault(
        "closing frees no locks",
        "_core/session.py",
        "            await self.leases.close(self.timing.release_timeout * _TO_LEAVE)\n",
        "            pass\n",
        _SHUTDOWN,
    ),
    Fault(
        "closing frees locks before their bodies have left",
        "_core/leases.py",
        "                    await self._bodies_left()\n",
        "                    pass\n",
        _SHUTDOWN,
        missed="no check looks at bodies that roll back",
    ),
    Fault(
        "closing tells holders nothing",
        "_core/leases.py",
        '            hold.tell_early("closed")\n',
        "            pass\n",
        _CLOSES,
        missed="they are told when their locks are freed",
    ),
    Fault(
        "a client that is closed is used on",
        "_core/acquire.py",
        "        if self._session.closed:\n            raise ClientClosedError(",
        "        if False:\n            raise ClientClosedError(",
        _CLOSES,
    ),
    Fault(
        "an eager connection runs before that is known",
        "_redis/connection.py",
        "                # An eager task must not go on before `wake` knows of it.\n"
        "                await asyncio.sleep(0)\n",
        "",
        _EAGER,
        missed=_IN_TIME,
    ),
    Fault(
        "an eager task asks for slots before that is known",
        "_redis/cluster/topology.py",
        "        # An eager task must not run before `_look` has stored it.\n        await asyncio.sleep(0)\n",
        "",
        "--on cluster --profile slots",
        missed=_IN_TIME,
    ),
)
