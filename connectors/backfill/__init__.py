"""First contents of a task, written by tasks of many key ranges at once."""
