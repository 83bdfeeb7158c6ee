"""The workflows call `.ci/run`, run code of others at known commits only, and give a right to write to one job."""

import re

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / ".github/workflows"
OURS = "./.github/workflows/ci.yml"

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the sdist has no workflows")


def texts() -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}


def test_actions_are_pinned() -> None:
    assert texts().keys() == {"ci.yml", "nightly.yml", "release.yml"}
    uses = re.findall(r"uses: (.+)", "\n".join(texts().values()))
    loose = {each for each in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+.*", each)}
    assert loose == {OURS}


def test_ci_is_one_script_with_the_whole_history() -> None:
    assert [name for name, text in texts().items() if ".ci/run #" in text] == ["ci.yml"]
    assert re.search(r"actions/checkout@.*\n +with:\n(?: {10}.*\n)*? {10}fetch-depth: 0 ", texts()["ci.yml"])


def test_each_night_has_seeds_of_its_own() -> None:
    [options] = re.findall(r"python -m tests.simulation (.+)", texts()["nightly.yml"])
    assert options == "--minutes 120 --jobs 4 --start $((1000000 * GITHUB_RUN_NUMBER))"


def test_each_night_measures_the_coverage() -> None:
    assert ".ci/run coverage\n" in texts()["nightly.yml"]
    assert 'make coverage PYTHON="$base"' in (ROOT / ".ci/run").read_text("utf-8")
    assert "--cov-fail-under=95" in (ROOT / "Makefile").read_text("utf-8")


def test_a_release_waits_for_the_same_ci_and_only_its_last_job_may_write() -> None:
    others, publish = texts()["release.yml"].split("\n  publish:\n")
    assert f"\n  ci:\n    uses: {OURS}\n" in others
    assert "\n    needs: [ci, build]\n" in f"\n{publish}"
    assert not re.findall(r": write\b", texts()["ci.yml"] + texts()["nightly.yml"] + others)
    assert re.findall(r"[\w-]+: write", publish) == ["id-token: write"]
    assert "attestations: true" in publish
    assert "run:" not in publish
