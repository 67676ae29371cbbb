"""The soak: writers, readers, compactors, kills; every read is checked."""
