"""`slackwater shard`: what a shard is made of, read from its topics alone."""
