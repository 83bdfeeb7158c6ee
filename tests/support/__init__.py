"""The tools of the tests: a proxy that causes faults, a harness that cancels everywhere, waiting by observation."""
