"""Benchmarks: aiolock beside other locks and beside the bare commands; README.md describes each measurement."""
