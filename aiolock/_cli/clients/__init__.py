"""`python -m aiolock clients`: who holds locks."""
