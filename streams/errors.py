"""The errors of the project, by their effect on the caller.

A lost race is a returned value, not an exception. Bad data is a row of a collection. All other
failures raise:

    SlackwaterError
    ├── InvalidUsage         the caller broke a rule; the same call will fail again
    ├── InvalidStatement     a SQL statement was refused; carries detail and hint for the user
    ├── Determinate          the outside world failed and the call had no effect
    ├── Indeterminate        the outside world failed and the call may have had an effect
    └── Corrupt              stored bytes are not what was written; names topic and offset

Exceptions cross process boundaries (Spark pickles them), so their arguments are positional
and reach `super().__init__`; the text is made in `__str__`.
"""


class SlackwaterError(Exception):
    """The base of all errors that this project raises on purpose."""


class InvalidUsage(SlackwaterError):
    """The caller broke a rule of the interface; a retry will fail again."""


class InvalidStatement(SlackwaterError):
    """A statement was refused.

    The message says what was expected and what came, `detail` adds facts, `hint` says
    what to do. Both may be empty.
    """

    def __init__(self, message: str, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail, hint)
        self.message, self.detail, self.hint = message, detail, hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"DETAIL: {self.detail}")
        if self.hint:
            lines.append(f"HINT: {self.hint}")
        return "\n".join(lines)


class Determinate(SlackwaterError):
    """An external failure; the call certainly had no effect and may be retried."""


class Indeterminate(SlackwaterError):
    """An external failure; the call may have had its effect: read back before a retry."""


class Corrupt(SlackwaterError):
    """Stored bytes fail their check; the message names topic, partition and offset."""
