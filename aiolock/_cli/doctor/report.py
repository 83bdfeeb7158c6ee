"""The results of the checks, as aligned text or as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from aiolock import __version__
from aiolock._cli.doctor.check import Check
from aiolock._cli.terminal import printable


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
        return json.dumps(
            {
                "aiolock": __version__,
                "server": self.address,
                "lease": self.lease,
                "fit": self.fit,
                "checks": [asdict(check) for check in self.checks],
            }
        )

    def _verdict(self) -> str:
        counts = [
            f"errors {self._count('error')}, warnings {self._count('warning')}",
            f"notes {self._count('note')}, not known {self._count('unknown')}",
        ]
        return f"{'Fit' if self.fit else 'NOT FIT'} to keep locks: {', '.join(counts)}."

    def _count(self, status: str) -> int:
        return sum(check.status == status for check in self.checks)
