"""`slackwater doctor`: what is wrong with a machine, its brokers and an environment's topics.

Checks judge and collect nothing; what collects judges nothing.

    facts       what was found out; plain values
    machine     checks of this machine: pure functions of facts
    brokers     checks of brokers and topics: pure functions of facts
    collect     finds the facts out: reads files, runs Java, asks brokers
    command     the command line
"""
