"""Locks as they are in Redis, read and put into words, for the verbs that look at locks."""
