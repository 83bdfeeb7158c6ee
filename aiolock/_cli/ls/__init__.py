"""`python -m aiolock ls`: lists the locks that are held."""
