"""Tests on a whole environment: a package, for they share one, which ends with the last."""
