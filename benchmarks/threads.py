"""
Threads: sections under a lock per second, with aiolock.blocking and with redis-py's blocking Lock.

``python -m benchmarks.threads``: one thread and twenty, each with a lock of its own or all with one, and beside threads
that compute. The libraries take turns in one run, and a figure is the median of the rounds; in brackets, that of the
thread that had the fewest.
"""

import argparse
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from time import perf_counter
from typing import NamedTuple

import redis as synchronous

from aiolock._embedded_server import Server
from aiolock.blocking import LockClient

Make = Callable[[str], AbstractContextManager[object]]


class Case(NamedTuple):
    """A number of threads, which enter sections in turn."""

    what: str
    threads: int
    shared: bool
    computing: int = 0


CASES = (
    Case("1 thread", 1, False),
    Case("20 threads, a lock each", 20, False),
    Case("20 threads, one lock", 20, True),
    Case("20 threads, a lock each, beside 2 that compute", 20, False, 2),
)


@contextmanager
def computing(number: int) -> Iterator[None]:
    """That number of threads compute meanwhile."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(10_000))

    threads = [threading.Thread(target=compute) for _ in range(number)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join()


class Rate(NamedTuple):
    """Sections per second: of all threads together, and of the one that had the fewest."""

    all: float
    least: float


def rate(case: Case, make: Make, seconds: float) -> Rate:
    """One round."""
    done: list[int] = []
    ready, over = threading.Barrier(case.threads + 1), threading.Event()

    def work(number: int) -> None:
        lock = make("shared" if case.shared else f"own {number}")
        sections = 0
        with lock:
            pass
        ready.wait()
        while not over.is_set():
            with lock:
                sections += 1
        done.append(sections)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(case.threads)]
    for each in threads:
        each.start()
    with computing(case.computing):
        ready.wait()
        began = perf_counter()
        over.wait(seconds)
        over.set()
        for each in threads:
            each.join()
        took = perf_counter() - began
        return Rate(sum(done) / took, min(done) / took)


def shown(rates: list[Rate]) -> str:
    """The medians of the rounds."""
    return f"{median(each.all for each in rates):,.0f} ({median(each.least for each in rates):,.1f})"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round")
    told = parser.parse_args()
    with Server() as server, synchronous.Redis.from_url(server.url) as redis, LockClient.from_url(server.url) as locks:
        makers: dict[str, Make] = {"redis-py": lambda name: redis.lock(name, timeout=30), "aiolock": locks.lock}
        print(f"| | {' | '.join(makers)} |\n|---|{'---:|' * len(makers)}")
        for case in CASES:
            rates: dict[str, list[Rate]] = {name: [] for name in makers}
            for _ in range(told.rounds):
                for name, make in makers.items():
                    rates[name].append(rate(case, make, told.seconds))
            print(f"| {case.what} | {' | '.join(map(shown, rates.values()))} |", flush=True)


if __name__ == "__main__":
    main()
