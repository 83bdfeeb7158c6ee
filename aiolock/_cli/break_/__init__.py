"""`python -m aiolock break`: frees a lock by force."""
