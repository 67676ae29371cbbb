"""`slackwater bench connectors`: rows into databases, beside the plainest way to write them."""
