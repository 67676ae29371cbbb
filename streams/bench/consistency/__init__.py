"""The internal-consistency test: views that must agree with each other at every moment."""
