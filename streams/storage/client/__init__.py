"""The client of many groups: follows their logs, sends events, waits for outcomes."""
