"""The page about the proof has the tables that the simulation has now."""

from tests.simulation.proof import PAGE, with_tables


def test_tables_of_the_page_are_those_of_the_simulation() -> None:
    page = PAGE.read_text("utf-8")
    assert with_tables(page) == page, "run `python -m tests.simulation.proof`"
