"""What is known of a plan without running it: keys, sizes, failures, equality, time."""
