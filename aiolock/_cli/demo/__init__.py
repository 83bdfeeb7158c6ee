"""`python -m aiolock demo`: processes share one account file under a lock, and some of them fail."""
