"""`python -m aiolock run`: runs a command under a lock."""
