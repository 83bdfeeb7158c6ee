"""`python -m aiolock inspect`: shows all that is known of one lock."""
