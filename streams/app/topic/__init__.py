"""`slackwater topic`: topics of a cluster, and the records in them."""
