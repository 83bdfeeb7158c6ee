"""`python -m aiolock top`: the locks as they change."""
