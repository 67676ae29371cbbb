"""Brokers that are their own controllers: one, or three of which two have to have a record."""

from collections.abc import Sequence

ONE = ("kafka",)
THREE = ("kafka1", "kafka2", "kafka3")
INSIDE, OUTSIDE, CONTROLLER = 19092, 9092, 9093
INTERNAL_TOPICS = ("OFFSETS_TOPIC", "TRANSACTION_STATE_LOG", "SHARE_COORDINATOR_STATE_TOPIC")


def bootstrap(names: Sequence[str]) -> str:
    """Where clients in the network of containers begin."""
    return ",".join(f"{name}:{INSIDE}" for name in names)


def variables(names: Sequence[str], number: int, port: int, via: str) -> dict[str, str]:
    """Those of one broker of some: it is reached at `port` from outside, and `via` a part."""
    name, copies = names[number], len(names)
    voters = [f"{node}@{host}:{CONTROLLER}" for node, host in enumerate(names, 1)]
    if copies == 1:
        voters = [f"1@localhost:{CONTROLLER}"]
    return {
        "CLUSTER_ID": "c2xhY2t3YXRlci1lMmUtMQ",
        "KAFKA_NODE_ID": str(number + 1),
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": ",".join(voters),
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_LISTENERS": f"INTERNAL://:{INSIDE},HOST://:{OUTSIDE},CONTROLLER://:{CONTROLLER}",
        "KAFKA_ADVERTISED_LISTENERS": (
            f"INTERNAL://{via or name}:{INSIDE},HOST://127.0.0.1:{port}"
        ),
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "INTERNAL:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        **{f"KAFKA_{topic}_REPLICATION_FACTOR": str(copies) for topic in INTERNAL_TOPICS},
        **{f"KAFKA_{topic}_NUM_PARTITIONS": "1" for topic in INTERNAL_TOPICS},
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": str((copies + 1) // 2),
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_BROKER_SESSION_TIMEOUT_MS": "2000",  # or a killed one may not register for 9 s
        "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500",
        "KAFKA_REPLICA_LAG_TIME_MAX_MS": "5000",  # a copy that is away holds writes so long
    }
