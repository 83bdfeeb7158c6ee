"""`python -m aiolock clients`: the clients that hold locks."""
