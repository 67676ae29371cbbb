"""`slackwater dlq`: dead letters of sources, listed, shown and replayed."""
