"""The command service: storage commands as records of one topic, their outcomes in another.

    <ns>.storage.commands    one partition; clients in any language append Avro commands
    <ns>.storage.responses   one partition; for each record of the commands one record,
                             committed in a Kafka transaction

Commands about one group are executed and answered in the order of the topic. A command that
waits (for its chunks, its counts, the end of its log, topic creation) is overtaken by commands
about other groups: `streams.storage.commands.dispatch` schedules, `worker_pool` has the
threads.

A command has exactly one outcome, even if it is delivered repeatedly, the service is killed, or
two services run at once:

1. *The responses are the memory.* Each says which record it answers. A successor fences
   the one before (`transactional.id`), reads what was answered, and carries out the rest
   (`Ledger`). So there is no state beside the topics, and never a second answer.
2. *An effect happens once.* The events of a command have names made of where it lies, and the
   logs keep what became of the last `KEPT` such names (`streams.storage.log.dedup_window`).
   A command that had its effect but not its answer is executed again under the same names, and
   gets the outcome of the first.
3. *A zombie does nothing.* Before events are sent, the service notes how far it has folded
   their logs (`seen`), then looks whether another service has answered anything, and only then
   sends. Suppose a successor has carried out a command at offset p of a log, and the zombie
   sends its events later. If p > seen, rule 1 finds the first or the copy is stale. If
   p <= seen, the command was not answered at the time of the look, so its crowd was not done.
   Until it is no other crowd acts upon its group, so all named events between p and the look
   are of this crowd: at most 3 `BATCH` a service. With three services in the middle of one, for
   the name to be forgotten `KEPT` - 9 `BATCH` > `WINDOW` more must have come since the look;
   then the copy is stale. The registry's log is every creation's: one event each, and none is
   begun `CREATIONS` beyond one that is not answered.

A command at which services end is answered as FAILED: `streams.storage.commands.marks`.

A refusal without an event needs no name. Most conditions that are refused before the log is
asked are permanent (an id that is bound, a capability that is gone), and the service checks
again whether the command was executed before. A condition that a later command may change
(bound, then dropped) is answered before that command begins (`dispatch`).
"""
