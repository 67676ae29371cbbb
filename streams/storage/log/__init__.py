"""The fold of a group's log: events, outcomes, state and its codecs. Pure."""
