"""Members of a JSON record that another process has written: of the expected type, or an error.

What is read from a topic is hostile until it is checked. It is checked where it is read, so
that a wrong record costs its own subject and no other, and the error names the member.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from streams.errors import Corrupt

MOST = (1 << 63) - 1
"""The largest whole number: that of a BIGINT."""
SHOWN = 60
"""Most characters of a wrong value in an error."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a record; `subject` is what errors are about.

    Errors of each method: Corrupt.
    """

    subject: str
    values: Mapping[str, object]

    @staticmethod
    def of(subject: str, text: str) -> "Members":
        """The members of a JSON object. Errors: Corrupt."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Corrupt(f"{subject}: expected JSON: {type(error).__name__}") from error
        if not isinstance(values, dict):
            raise Corrupt(f"{subject}: expected a JSON object, actual {shown(values)}")
        return Members(subject, values)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str:
        """A text that can be written again."""
        value = self._of(name)
        if not is_text(value):
            raise self._wrong(name, "a text", value)
        return str(value)

    def count(self, name: str) -> int:
        """A whole number of at least 0."""
        value = self._of(name)
        if not is_count(value):
            raise self._wrong(name, "a whole number of at least 0", value)
        assert isinstance(value, int)
        return value

    def maybe_count(self, name: str) -> int | None:
        """A count, or null."""
        return None if self._of(name) is None else self.count(name)

    def mapping(self, name: str) -> Mapping[str, object]:
        """An object."""
        value = self._of(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object", value)
        return value

    def maybe_members(self, name: str) -> "Members | None":
        """The members of an object, or null."""
        if self._of(name) is None:
            return None
        return Members(f"{self.subject}: {name}", self.mapping(name))

    def texts(self, name: str) -> Mapping[str, str]:
        """An object of texts."""
        inside = Members(f"{self.subject}: {name}", self.mapping(name))
        return {self._name(name, key): inside.text(key) for key in inside.values}

    def counts(self, name: str) -> Mapping[str, int]:
        """An object of counts."""
        inside = Members(f"{self.subject}: {name}", self.mapping(name))
        return {self._name(name, key): inside.count(key) for key in inside.values}

    def flags(self, name: str) -> Mapping[str, bool]:
        """An object of truth values."""
        values = self.mapping(name)
        flags = {key: value for key, value in values.items() if isinstance(value, bool)}
        if len(flags) != len(values):
            raise self._wrong(name, "an object of truth values", dict(values))
        return flags

    def list_of_counts(self, name: str) -> tuple[int, ...]:
        """A list of counts."""
        value = self._of(name)
        if not isinstance(value, list) or not all(map(is_count, value)):
            raise self._wrong(name, "a list of whole numbers of at least 0", value)
        return tuple(value)

    def list_of_texts(self, name: str) -> tuple[str, ...]:
        """A list of texts that are not empty."""
        value = self._of(name)
        if not isinstance(value, list) or not all(is_text(text) and text for text in value):
            raise self._wrong(name, "a list of texts", value)
        return tuple(value)

    def _of(self, name: str) -> object:
        if name not in self.values:
            raise Corrupt(f"{self.subject}: expected a member {name}, actual none")
        return self.values[name]

    def _name(self, member: str, name: str) -> str:
        if not is_text(name):
            raise self._wrong(member, "names that are texts", name)
        return name

    def _wrong(self, name: str, expected: str, value: object) -> Corrupt:
        return Corrupt(f"{self.subject}: {name}: expected {expected}, actual {shown(value)}")


def is_text(value: object) -> bool:
    """Whether it is a text of characters: JSON has halves of some, which no encoding has."""
    return isinstance(value, str) and not any(
        "\ud800" <= character <= "\udfff" for character in value
    )


def is_count(value: object) -> bool:
    """Whether it is a whole number of at least 0 that a BIGINT holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def shown(value: object) -> str:
    """A wrong value, of at most so many characters."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
