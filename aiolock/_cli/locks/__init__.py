"""What is in Redis, read and said in words: for the verbs that look at locks."""
