"""Benchmarks: aiolock beside other locks and beside the bare commands; README.md says what is measured and how."""
