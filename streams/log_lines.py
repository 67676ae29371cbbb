"""Log lines of services: for people, or one JSON object a line.

A JSON line has, in this order,

    time        ISO 8601 in UTC, with milliseconds
    level       DEBUG, INFO, WARNING, ERROR or CRITICAL
    logger      the name of the logger, a module's or a class's of Java
    message     one text
    service     the process that wrote it: coordinator, replica, compaction, ...
    fields      an object: what the code has added as `extra`; absent if nothing
    exception   the stack trace, lines separated by a newline; absent without one

Lines of Java are written by Log4j 2 in the same form (`log4j2`), without `fields`.
"""

import json
import logging
import math
import sys
import threading
from datetime import UTC, datetime
from typing import Literal, TextIO, get_args

LogFormat = Literal["text", "json"]
FORMATS: tuple[str, ...] = get_args(LogFormat)
JSON: LogFormat = "json"

COUNTED = ("warning", "error", "critical")
"""The levels whose records are counted, by the names that metrics have for them."""

_counts = dict.fromkeys(COUNTED, 0)
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_KEYS = ("time", "level", "logger", "message", "service")


def configure(log_format: str, service: str, stream: TextIO) -> None:
    """Write what this process logs, from INFO on, to a stream, and nowhere else.

    As JSON also warnings of Python, and exceptions that end a thread or the process: Python
    itself would write them in lines of its own form.
    """
    handler = logging.StreamHandler(stream)
    handler.addFilter(_count)
    handler.setFormatter(JsonLines(service) if log_format == JSON else TextLines(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if log_format == JSON:
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_end_of_process
        threading.excepthook = _log_end_of_thread


def counts() -> dict[str, int]:
    """The records that this process has logged, by level."""
    return dict(_counts)


def _count(record: logging.LogRecord) -> bool:
    """Count a record, under the handler's lock; it is always written."""
    level = record.levelname.lower()
    if level in _counts:
        _counts[level] += 1
    return True


class TextLines(logging.Formatter):
    """A line for people, with the fields of `extra` at the end."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        text = super().format(record)
        return text + "".join(f" {key}={value}" for key, value in _extra(record).items())


class JsonLines(logging.Formatter):
    """A JSON object in one line, in ASCII, whatever a message holds."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "service": self._service,
        }
        if fields := _extra(record):
            line["fields"] = {key: _scalar(value) for key, value in fields.items()}
        trace = [self.formatException(record.exc_info)] if record.exc_info else []
        trace += [self.formatStack(record.stack_info)] if record.stack_info else []
        if trace:
            line["exception"] = "\n".join(trace)
        return json.dumps(line)


def as_text(line: str) -> list[str]:
    """The lines for people that say what a JSON line says; any other line as it is."""
    if not line.startswith('{"time"'):
        return [line]
    try:
        values = json.loads(line)
    except ValueError:
        return [line]  # cut off
    if not isinstance(values, dict) or not all(key in values for key in _KEYS):
        return [line]
    fields = values.get("fields")
    added = "".join(f" {k}={v}" for k, v in fields.items()) if isinstance(fields, dict) else ""
    day, _, clock = str(values["time"]).partition("T")
    said = f"{day} {clock} {values['level']} {values['logger']}: {values['message']}{added}"
    return [*said.splitlines(), *str(values.get("exception", "")).splitlines()]


def log4j2(service: str) -> str:
    """The properties with which Log4j 2 writes JSON lines of this form to standard error.

    Only the core of Log4j is needed. Source: Log4j 2, "Pattern Layout": `enc`, `notEmpty`.
    """
    pattern = (
        "{\"time\":\"%d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC}\","
        '"level":"%level{WARN=WARNING, FATAL=CRITICAL}","logger":"%enc{%c}{JSON}",'
        f'"message":"%enc{{%m}}{{JSON}}","service":"{service}"'
        '%notEmpty{,"exception":"%enc{%throwable}{JSON}"}}%n'
    )
    return f"""\
status = error
appender.lines.type = Console
appender.lines.name = lines
appender.lines.target = SYSTEM_ERR
appender.lines.layout.type = PatternLayout
appender.lines.layout.charset = UTF-8
appender.lines.layout.alwaysWriteExceptions = false
appender.lines.layout.pattern = {pattern}
rootLogger.level = warn
rootLogger.appenderRef.lines.ref = lines
"""


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """What a record carries beyond the usual."""
    return {key: value for key, value in vars(record).items() if key not in _USUAL}


def _scalar(value: object) -> object:
    """A value that JSON has; the text of any other."""
    is_json = value is None or isinstance(value, str | int)
    is_finite = isinstance(value, float) and math.isfinite(value)
    return value if is_json or is_finite else str(value)


def _log_end_of_process(
    kind: type[BaseException],
    error: BaseException,
    trace: object,  # noqa: ARG001  as Python calls it
) -> None:
    logging.getLogger(__name__).critical(
        "%s ends the process", kind.__name__, exc_info=(kind, error, error.__traceback__)
    )


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit or ended.exc_value is None:
        return
    name = "a thread" if ended.thread is None else f"thread {ended.thread.name}"
    logging.getLogger(__name__).error(
        "%s ends %s",
        ended.exc_type.__name__,
        name,
        exc_info=(ended.exc_type, ended.exc_value, ended.exc_traceback),
    )
