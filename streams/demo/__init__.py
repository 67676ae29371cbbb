"""The demo: a year of real flights, replayed into Kafka, watched live and checked."""
