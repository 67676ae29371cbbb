"""Tokeniser of Slackwater's statements, and a cursor over the tokens.

sqlglot's DuckDB tokenizer knows where strings, quoted names, dollar quotes and comments end,
so a `;` or a keyword inside one is no token. Only the places of tokens count: what we do not
parse ourselves is sliced out of the user's text, untouched.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from streams.errors import InvalidStatement


class Slackwater(Dialect):
    """DuckDB's words, where no first word makes the rest of a statement opaque."""

    class Tokenizer(DuckDB.Tokenizer):
        """sqlglot would hand over everything after EXPLAIN or CALL as one string."""

        COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text, from `start` up to but not including `end`."""

    kind: TokenType
    text: str
    start: int
    end: int


@lru_cache(maxsize=16)
def tokenize(text: str) -> tuple[Token, ...]:
    """Cut the text into tokens; comments and blanks are none.

    Planning asks for those of one query several times.

    Errors: InvalidStatement for an open string, quoted name or comment.
    """
    try:
        tokens = Slackwater().tokenize(text)
    except TokenError as error:
        raise InvalidStatement(
            "the text ends inside a string, a quoted name or a comment",
            hint="close it with the quote it began with",
        ) from error
    return tuple(Token(t.token_type, t.text, t.start, t.end + 1) for t in tokens)


def place(text: str, offset: int) -> str:
    """Line and column, from one, of an offset into the text."""
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return f"line {line}, column {column}"


def split(tokens: tuple[Token, ...]) -> tuple[tuple[Token, ...], ...]:
    """The statements between semicolons, the empty ones left out."""
    statements: list[tuple[Token, ...]] = []
    current: list[Token] = []
    for token in tokens:
        if token.kind is TokenType.SEMICOLON:
            statements.append(tuple(current))
            current = []
        else:
            current.append(token)
    statements.append(tuple(current))
    return tuple(statement for statement in statements if statement)


@dataclass(slots=True)
class Cursor:
    """Reads one statement word by word; every failure says what was expected and where."""

    source: str
    tokens: tuple[Token, ...]
    usage: str = ""  # the statement's form, once the first words have told which it is
    position: int = field(default=0)

    @property
    def current(self) -> Token | None:
        """The next token, if there is one."""
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self) -> Token:
        """The next token, which must be there, and step behind it."""
        token = self.current
        if token is None:
            raise self.refused("more")
        self.position += 1
        return token

    def refused(self, expected: str) -> InvalidStatement:
        """The error for what stands at the cursor."""
        token = self.current
        text = self.source[token.start : token.end] if token else "the end of the statement"
        offset = token.start if token else self.tokens[-1].end
        hint = f"the statement is {self.usage}" if self.usage else ""
        return InvalidStatement(
            f"expected {expected}, actual {text}", place(self.source, offset), hint
        )

    def at(self, *words: str) -> bool:
        """Tell whether these words come next."""
        ahead = self.tokens[self.position : self.position + len(words)]
        return len(ahead) == len(words) and all(
            _is(token, word) for token, word in zip(ahead, words, strict=True)
        )

    def accept(self, *words: str) -> bool:
        """Step behind these words if they come next."""
        word = self.at(*words)
        self.position += len(words) if word else 0
        return word

    def expect(self, *words: str) -> None:
        """Step behind these words, which must come next."""
        for word in words:
            if not self.accept(word):
                raise self.refused(word)

    def choose(self, words: tuple[str, ...]) -> str:
        """The one of these (of one or two words) that comes next, and step behind it."""
        for word in words:
            if self.accept(*word.split()):
                return word
        raise self.refused(_either(words))

    def name(self, what: str) -> str:
        """A name: a bare word, kept as written, or a quoted one, which is not empty."""
        token = self.current
        if token is None or not token.text or not _names(self.source, token):
            raise self.refused(what)
        self.position += 1
        if self.at("."):
            raise self.refused(f"{what} without a qualifier")
        return token.text

    def relation(self, what: str) -> str:
        """The name of a relation: as `name`, or with a dot.

        That is one of a source's dead letters, `a.errors`, or of the system, `slackwater.a`.
        """
        following = self.tokens[self.position + 1 : self.position + 3]
        dot, *last = [token.text.lower() for token in following] or [""]
        is_system = self.at("SLACKWATER")
        if dot != "." or not last or not (is_system or last == ["errors"]):
            return self.name(what)
        owner = Cursor(self.source, self.tokens[: self.position + 1], self.usage, self.position)
        name = owner.name(what)
        self.position += 3
        return f"{name}.{last[0]}"

    def string(self, what: str) -> str:
        """A string constant."""
        token = self.current
        if token is None or token.kind not in _STRINGS:
            raise self.refused(what)
        self.position += 1
        return token.text

    def integer(self, what: str) -> int:
        """A non-negative integer of 64 bits."""
        token = self.current
        if token is None or token.kind is not TokenType.NUMBER or not token.text.isdecimal():
            raise self.refused(what)
        is_long = len(token.text) > len(str(_GREATEST))
        value = _GREATEST + 1 if is_long else int(token.text)
        if value > _GREATEST:
            raise self.refused(f"{what} up to {_GREATEST}")
        self.position += 1
        return value

    def names(self, what: str) -> tuple[str, ...]:
        """Names between parentheses, at least one, none twice (compared without case)."""
        self.expect("(")
        names_ = [self.name(what)]
        while self.accept(","):
            names_.append(self.name(what))
        self.expect(")")
        if len({name.lower() for name in names_}) < len(names_):
            raise InvalidStatement(f"{what} appears twice in ({', '.join(names_)})")
        return tuple(names_)

    def rest(self) -> str:
        """The user's text from here to the statement's end, untouched."""
        token = self.take()
        self.position = len(self.tokens)
        return self.source[token.start : self.tokens[-1].end]

    def until(self, closers: tuple[str, ...]) -> str:
        """The user's text up to one of these tokens outside any bracket."""
        first, depth = self.current, 0
        while self.current and (depth or not any(map(self.at, closers))):
            depth += _OPENS.get(self.take().text, 0)
        last = self.tokens[self.position - 1]
        if first is None or last.start < first.start:
            raise self.refused("a type")
        return self.source[first.start : last.end]

    def end(self) -> None:
        """The statement must end here."""
        if self.current is not None:
            raise self.refused("the end of the statement")


_GREATEST = 2**63 - 1
_STRINGS = frozenset({TokenType.STRING, TokenType.HEREDOC_STRING})
_OPENS = {"(": 1, ")": -1, "[": 1, "]": -1}


def _is(token: Token, word: str) -> bool:
    quoted = token.kind in _STRINGS or token.kind is TokenType.IDENTIFIER
    return not quoted and token.text.upper() == word


def _names(source: str, token: Token) -> bool:
    if token.kind is TokenType.IDENTIFIER:
        return True
    word = source[token.start : token.end]
    return token.kind not in _STRINGS and word.replace("$", "_").isidentifier()


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
