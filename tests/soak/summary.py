"""The summary of a soak, which fits on one screen."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.soak.judge import Evidence, counted, longest_wait, memory, silences
from tests.soak.run import Options

_MOST_OF_A_KIND = 3


def shown(options: Options, evidence: Evidence, findings: list[str]) -> str:
    """The faults, their effects, and the findings."""
    lines = [*_work(options, evidence), *_faults(evidence), *_troubles(evidence), *_findings(findings)]
    return "\n".join(lines)


def _work(options: Options, evidence: Evidence) -> Iterator[str]:
    sections: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    runs: dict[str, set[str]] = defaultdict(set)
    for life in evidence.lives:
        sections[life.worker] += len(life.stays)
        forms.update(stay.enter.form for stay in life.stays)
        runs[life.worker].update(entry.note for entry in life.of("begin"))
    seconds = evidence.end - evidence.begin
    yield f"soak on {options.on}, {seconds / 60:.1f} minutes, seed {options.seed}"
    yield f"sections     {sections.total():,} in {len(evidence.lives)} lives, {sections.total() / seconds:.0f} a second"
    for worker, count in sorted(sections.items()):
        grown = [memory(life) for life in evidence.lives if life.worker == worker]
        early, late = max(grown, key=lambda pair: pair[1])
        on = ", ".join(runs[worker])
        yield f"  {worker}   {count:,} on {on}; {early / 1000:.1f} MB, at last {late / 1000:.1f} MB"
    yield f"forms        {_together(forms)}"
    whole, unexplained = longest_wait(evidence)
    yield f"waits        the longest {whole:.1f} s; beyond the faults {unexplained:.1f} s"


def _faults(evidence: Evidence) -> Iterator[str]:
    yield f"faults       {len(evidence.faults)}"
    lasted = defaultdict(list)
    for fault in evidence.faults:
        lasted[fault.kind].append(fault.end - fault.begin)
    for kind, silent in sorted(silences(evidence).items()):
        yield (
            f"  {kind}: {len(silent)}, lasted up to {max(lasted[kind]):.1f} s,"
            f" nothing granted for up to {max(silent):.1f} s"
        )


def _troubles(evidence: Evidence) -> Iterator[str]:
    renewed = sum(stay.lost and stay.enter.renewed for life in evidence.lives for stay in life.stays)
    yield f"errors       {_together(counted(evidence, 'failed')) or 'none'}; renewed leases lost: {renewed}"


def _findings(findings: list[str]) -> Iterator[str]:
    if not findings:
        yield "found        no overlap, no token out of order, nothing left behind"
        return
    kinds: dict[str, list[str]] = defaultdict(list)
    for finding in findings:
        kinds[finding.split(":")[0]].append(finding)
    yield f"found        {_together(Counter({kind: len(all_of_it) for kind, all_of_it in kinds.items()}))}"
    for all_of_it in kinds.values():
        for finding in all_of_it[:_MOST_OF_A_KIND]:
            yield f"  {finding}"


def _together(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in counts.most_common())
