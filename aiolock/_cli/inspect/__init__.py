"""`python -m aiolock inspect`: tells all that is known of one lock."""
