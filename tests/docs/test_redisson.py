"""The page about Redisson: its table is complete, and names tests."""

import re
from collections import Counter

import pytest

from tests.docs.pages import ROOT
from tests.interop.conftest import VERSIONS

_PAGE = (ROOT / "docs/reference/redisson.md").read_text("utf-8")
_CASE = re.compile(r"^\| `(?P<case>test\w*)` \| (?P<here>[a-z ]+) \|(?P<why>[^|]*)\|(?P<tests>[^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)::(?P<name>\w+)`")
_CASES = {
    "RedissonLockTest": 26,
    "RedissonMultiLockTest": 4,
    "RedissonReadWriteLockTest": 32,
    "RedissonFairLockTest": 28,
    "RedissonPermitExpirableSemaphoreTest": 30,
    "RedissonSemaphoreTest": 17,
    "RedissonCountDownLatchTest": 8,
    "RedissonCountDownLatchConcurrentTest": 1,
}


def test_it_names_tests_and_no_files() -> None:
    # The page names the directory itself once.
    assert len(_TEST.findall(_PAGE)) == _PAGE.count("`tests/") - 1


@pytest.mark.parametrize("suite", _CASES)
def test_every_case_is_there_once_with_a_verdict_and_its_tests(suite: str) -> None:
    table = _PAGE.partition(f"`{suite}`")[2].partition("`:\n")[0]
    cases = list(_CASE.finditer(table))
    assert len(cases) == len({case["case"] for case in cases}) == _CASES[suite]
    for case in cases:
        assert case["here"] in ("same", "different", "not yet"), case[0]
        assert bool(_TEST.search(case["tests"])) == (case["here"] != "not yet"), case[0]
        assert case["why"].strip() or case["here"] == "same", case[0]


def test_the_versions_are_those_that_are_tested() -> None:
    assert Counter(re.findall(r"\b\d+\.\d+\.\d+\b", _PAGE.split("##")[0])) == Counter(VERSIONS)
