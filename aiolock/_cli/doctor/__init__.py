"""`python -m aiolock doctor`: checks whether a server is fit to keep locks."""
