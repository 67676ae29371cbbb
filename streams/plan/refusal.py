"""The refusal of a construct: its name, and what to do instead."""

from dataclasses import dataclass

from streams.errors import InvalidStatement


@dataclass(frozen=True, slots=True)
class Refusal:
    """A construct's name, and what to do instead."""

    construct: str
    hint: str = ""
    detail: str = ""

    def raised(self) -> InvalidStatement:
        """The refusal as the error a user sees."""
        text = f"{self.construct} is not supported in a materialized view"
        return InvalidStatement(text, self.detail, self.hint)
