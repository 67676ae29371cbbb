"""The command line and the composition root: the only package that reads the environment."""
