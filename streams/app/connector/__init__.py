"""`slackwater connector`: the calls of the materialization protocol, by hand and served."""
