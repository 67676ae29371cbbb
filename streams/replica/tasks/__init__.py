"""The tasks of a micro-batch: they load inputs, step dataflows and write chunks."""
