"""The broker's own configuration: one node, loopback only, sized for a small machine."""

from collections.abc import Mapping
from pathlib import Path

from streams.kafka.embedded.security import PROTOCOL, BrokerSecurity

NODE = 1
"""The id of the one node."""

_FIXED: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": str(NODE),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    # topics are created explicitly, with the settings of their kind
    "auto.create.topics.enable": "false",
    # one node cannot hold three copies
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Kafka's own topics have 50 partitions each by default: seconds of every first use
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # a transaction left by a killed writer holds up read_committed readers until it is aborted
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # few threads on few cores
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "2",
    "log.cleaner.enable": "true",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    # index files are mapped at full size: hundreds of partitions at 10 MiB each add up
    "log.index.size.max.bytes": str(1 << 20),
    "log.segment.delete.delay.ms": "10000",
    # an idle controller need not write and sync twice a second
    "metadata.max.idle.interval.ms": "5000",
    # recovers soon after a crash, yet tolerates a machine under load
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
}


def server_properties(
    data: Path, port: int, controller_port: int, security: BrokerSecurity | None = None
) -> str:
    """The text of `server.properties`; with `security` it holds passwords."""
    listener = "PLAINTEXT" if security is None else PROTOCOL
    where = {
        "listeners": f"{listener}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"{listener}://127.0.0.1:{port}",
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{controller_port}",
        "log.dirs": str(data),
    }
    secured = {} if security is None else security.properties()
    return "".join(
        f"{name}={value}\n" for name, value in {**_FIXED, **where, **secured}.items()
    )


LOG4J = """\
Configuration:
  status: ERROR
  Appenders:
    Console:
      name: STDOUT
      PatternLayout: {pattern: "[%d] %p %m (%c)%n"}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: STDOUT}}
    Logger:
      - {name: kafka.server.KafkaRaftServer, level: INFO}
      - {name: kafka.server.BrokerServer, level: INFO}
"""
