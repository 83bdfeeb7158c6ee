"""`python -m aiolock completion`: completes verbs and options in a shell."""
