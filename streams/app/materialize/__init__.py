"""`slackwater materialize`: collections kept in databases, from the brokers alone."""
