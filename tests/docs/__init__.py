"""The documentation tells the truth: its examples run, its links lead somewhere, its tables are complete."""
