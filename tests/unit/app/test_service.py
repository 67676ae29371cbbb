"""What a service is told by a file, and what is said of a file that is wrong."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.app.commands import app
from streams.app.service_config import Service, read_service
from streams.errors import InvalidUsage

SECRET = "hunter2"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    service = Service(
        bootstrap="a:1", directory="d", client={"sasl.password": SECRET}, points={"x": 2}
    )
    service.write(tmp_path / "config.json")
    assert read_service(tmp_path / "config.json") == service


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{{{SECRET}", "expected JSON in"),
        ("[1]", "expected one JSON object"),
        ("{}", "bootstrap: missing; directory: missing"),
        (
            '{"bootstrap": "a:1", "directory": "d", "buckets": "1"}',
            "buckets: expected a whole number",
        ),
        (
            '{"bootstrap": "a:1", "directory": "d", "buckets": true}',
            "buckets: expected a whole number",
        ),
        ('{"bootstrap": 7, "directory": "d"}', "bootstrap: expected a text, actual int"),
        ('{"bootstrap": "a:1", "directory": "d", "client": "x"}', "client: expected an object"),
        ('{"bootstrap": "a:1", "directory": "d", "colour": 1}', "colour: no such setting"),
        (
            '{"bootstrap": "a:1", "directory": "d", "log_format": "xml"}',
            "log_format: expected text or json",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_and_no_value_shown(
    tmp_path: Path, text: str, message: str
) -> None:
    config = tmp_path / "config.json"
    config.write_text(text)
    with pytest.raises(InvalidUsage, match=message) as caught:
        read_service(config)
    assert str(config) in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("command", ["replica", "coordinator", "compaction", "storage"])
def test_a_service_with_a_wrong_file_ends_at_once_with_code_2(
    tmp_path: Path, command: str
) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    done = CliRunner().invoke(app, [command, "--config", str(config)])
    assert done.exit_code == 2
    assert "bootstrap: missing" in " ".join(done.output.replace("│", " ").split())
