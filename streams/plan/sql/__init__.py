"""The text of statements: tokens, grammar, durations, limits."""
