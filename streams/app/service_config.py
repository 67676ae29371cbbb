"""The configuration of an environment's services: one file that the supervisor writes.

Apart from the services themselves (`streams.app.service_process`), so that the shell need not
load Spark and the planner to read it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path

from streams.errors import InvalidUsage
from streams.files import write_whole
from streams.http.listening import Listening, address, password_in
from streams.kafka.settings import ClientSettings
from streams.log_lines import FORMATS, LogFormat

FAILED = 1
"""Exit code of a service that could not go on."""

FENCED = 3
"""Exit code of a coordinator that another one has taken over from."""

RESIDENT_TASKS = 1
"""Resident tasks of a replica, unless its user says otherwise."""

CORES = min(os.cpu_count() or 2, 8)
"""Cores of this machine for Spark, and buckets of state, unless its user says otherwise."""

MASTER = f"local[{CORES},4]"  # four attempts a task: without them one lost worker ends a lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The configuration of a service.

    `slice_bytes` is how much of the stored inputs a hydration takes at once, `deadline_ms` how
    long the tasks of the smallest micro-batch may take. So many `statements` are computed at a
    time, each within `statement_memory` and `statement_disk` (bytes) and `statement_ms`
    (`streams.adapter.workers.limits`). `topics` are pairs as `streams.kafka.topic_settings`
    reads them; `points` say where a test wants the service to die. `listen` is HOST:PORT, with
    the files that protect it (`streams.http.listening`); without it only a coordinator listens.
    All indexes of a replica have `index_memory` bytes together. It has `resident_tasks` of
    Spark for small steps (`streams.replica.driver.fast_path`).
    A coordinator audits a view each `audit_every_s` seconds; with 0 none. It and a replica
    write files below the URIs `copy_to` (`streams.copies.targets`). A replica whose executors
    share no directory has `store`, `cache` and `cache_bytes` (`streams.replica.state_files`).
    `fork_server` is the socket of the environment's, if it has one (`streams.forks`).
    """

    bootstrap: str
    directory: str
    namespace: str = "sw"
    instance: str = "default"
    buckets: int = 2
    listen: str = ""
    certificate: str = ""
    key: str = ""
    client_authority: str = ""
    password_file: str = ""
    replica: str = "r1"
    master: str = "local[2,4]"
    resident_tasks: int = 0
    driver_memory: str = "1g"
    slice_bytes: int = 16 << 20
    index_memory: int = 512 << 20
    deadline_ms: int = 60_000
    retain_ms: int = 3_600_000
    statements: int = 4
    statement_memory: int = 2 << 30
    statement_disk: int = 4 << 30
    statement_ms: int = 60_000
    compact_every_s: float = 30.0
    audit_every_s: float = 60.0
    copy_to: list[str] = field(default_factory=list, repr=False)  # may hold secrets
    store: str = field(default="", repr=False)  # may hold secrets
    cache: str = ""
    cache_bytes: int = 16 << 30
    spark_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    timings: bool = False
    log_format: LogFormat = "text"
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    topics: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    points: Mapping[str, int] = field(default_factory=dict)
    fork_server: str = ""

    @property
    def kafka(self) -> ClientSettings:
        """The connection to Kafka."""
        return ClientSettings(self.bootstrap, tuple(sorted(self.client.items())))

    @property
    def listening(self) -> Listening | None:
        """Where it listens; None if nowhere. Errors: InvalidUsage."""
        files = (self.certificate, self.key, self.client_authority)
        if not self.listen:
            if any(files) or self.password_file:
                raise InvalidUsage(
                    "expected --listen HOST:PORT with TLS and a password, actual none"
                )
            return None
        host, port = address(self.listen)
        certificate, key, client_authority = (
            Path(file).absolute() if file else None for file in files
        )
        return Listening(
            host=host,
            port=port,
            certificate=certificate,
            key=key,
            client_authority=client_authority,
            password=password_in(Path(self.password_file)) if self.password_file else "",
        )

    def write(self, path: Path) -> None:
        """Keep it as JSON, readable by the owner alone: it may hold secrets."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n", mode=0o600)


def read_service(path: Path) -> Service:
    """Read the file that `Service.write` wrote.

    Errors: InvalidUsage when the file holds something else; it never shows a value, which may
    be a secret.
    """
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as cause:
        kind = type(cause).__name__
        raise InvalidUsage(f"expected JSON in {path}, which cannot be read: {kind}") from cause
    if not isinstance(document, dict):
        raise InvalidUsage(
            f"expected one JSON object in {path}, actual {type(document).__name__}"
        )
    faults = "; ".join(_faults(document))
    if faults:
        raise InvalidUsage(f"{path}: {faults}")
    return Service(**document)


_KINDS: Mapping[object, tuple[str, tuple[type, ...]]] = {
    str: ("a text", (str,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    LogFormat: ("a text", (str,)),
    list[str]: ("a list", (list,)),
}
_OBJECT: tuple[str, tuple[type, ...]] = ("an object", (dict,))


def _faults(document: Mapping[str, object]) -> Iterator[str]:
    """The errors in the settings of a file."""
    fields_by_name = {setting.name: setting for setting in fields(Service)}
    for name in sorted(document.keys() - fields_by_name.keys()):
        yield f"{name}: no such setting"
    for name, setting in fields_by_name.items():
        if name not in document:
            if setting.default is MISSING and setting.default_factory is MISSING:
                yield f"{name}: missing"
            continue
        expected, types = _KINDS.get(setting.type, _OBJECT)
        value = document[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            yield f"{name}: expected {expected}, actual {type(value).__name__}"
        elif setting.type == LogFormat and value not in FORMATS:
            yield f"{name}: expected {' or '.join(FORMATS)}, actual another text"
