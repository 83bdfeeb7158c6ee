"""The checks of one server, or of a quorum, and their results as aligned text or as JSON."""

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass

from aiolock import __version__
from aiolock._cli.doctor import quorum, trials
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.examination import Examination
from aiolock._cli.failure import refused_as_usage
from aiolock._cli.output import printable
from aiolock._cli.way_in import client_of
from aiolock._config import LockConfig
from aiolock._redis.address import address


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks at an address."""

    address: str
    lease: float
    checks: Sequence[Check]

    @property
    def fit(self) -> bool:
        """Whether no check ended in an error."""
        return not self._count("error")

    def text(self) -> str:
        """The text for people."""
        width = max(len(check.name) for check in self.checks)
        lines = [f"aiolock {__version__} doctor: {self.address}, for a lease of {self.lease:g} s", ""]
        for check in self.checks:
            lines.append(f"{check.status:<7}  {check.name:<{width}}  {printable(check.found)}")
            if check.advice:
                lines.append(f"{'':<7}  {'':<{width}}  -> {check.advice}")
        return "\n".join([*lines, "", self._verdict()])

    def json(self) -> str:
        """The JSON for programs."""
        of_all = {"aiolock": __version__, "server": self.address, "lease": self.lease, "fit": self.fit}
        return json.dumps({**of_all, "checks": [asdict(check) for check in self.checks]})

    def _verdict(self) -> str:
        counts = [
            f"errors {self._count('error')}, warnings {self._count('warning')}",
            f"notes {self._count('note')}, not known {self._count('unknown')}",
        ]
        return f"{'Fit' if self.fit else 'NOT FIT'} to keep locks: {', '.join(counts)}."

    def _count(self, status: str) -> int:
        return sum(check.status == status for check in self.checks)


async def report_on(url: str, lease: float, prefix: str, primary: str | None = None) -> Report:
    """The results of the checks at *url*; *primary* names the one to examine if a Sentinel watches several."""
    config = _config(lease, prefix)
    async with client_of(url) as redis:
        return Report(address(redis), lease, await Examination(url, redis, config, primary).run())


async def report_on_quorum(urls: Sequence[str], lease: float, prefix: str) -> Report:
    """The results of the checks of several servers."""
    config = _config(lease, prefix)
    async with AsyncExitStack() as stack:
        servers = [(url, await stack.enter_async_context(client_of(url))) for url in urls]
        addresses = ", ".join(address(redis) for _, redis in servers)
        return Report(addresses, lease, await quorum.examine(servers, config))


def _config(lease: float, prefix: str) -> LockConfig:
    """The settings of a client with that *lease* and *prefix*."""
    with refused_as_usage():
        config = LockConfig(lease=lease, prefix=prefix)
        trials.throw_away(prefix)
    return config
