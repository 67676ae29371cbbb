"""`slackwater top`: the objects and replicas of an environment, live."""
