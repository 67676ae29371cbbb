"""Worker processes of bounded memory, in which the engine evaluates users' texts."""
