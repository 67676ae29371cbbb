"""From the logical plan to stages: operators, their state, and where data must move."""
