"""The demo: processes share one account file under a lock, and some of them fail. `python -m examples.demo` runs it."""
