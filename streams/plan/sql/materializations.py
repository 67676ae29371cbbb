"""The statements about materializations, and their grammar.

What an endpoint and a resource take is the connector's: options are names and values here, and
judged when the statement is executed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import TokenType

from streams.errors import InvalidStatement
from streams.plan.sql.tokens import Cursor, Token

Value = str | int | float | bool | tuple[str, ...]
Options = Mapping[str, Value]
"""Options by lower-case name; words of a name are joined by `_`. Without a value: true."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A source or view, and the options of where it is kept."""

    relation: str
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMaterialization:
    """Keep sources and views in an endpoint. `connector` is lower-case.

    `settings` are of how it is written, whatever the endpoint is.
    """

    name: str
    connector: str
    options: Options
    bindings: tuple[Bind, ...]
    if_not_exists: bool
    settings: Options


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop writing, but keep the history that is needed to resume."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on."""


@dataclass(frozen=True, slots=True)
class AddBindings:
    """Keep more of them."""

    bindings: tuple[Bind, ...]


@dataclass(frozen=True, slots=True)
class DropBindings:
    """Stop maintaining some bindings; their rows stay in the endpoint."""

    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Amendment:
    """Options that get another value, and names of those that get the default again."""

    values: Options = field(default_factory=dict)
    reset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AmendEndpoint:
    """Change options of the endpoint."""

    amendment: Amendment


@dataclass(frozen=True, slots=True)
class AmendSettings:
    """Change settings of how it is written."""

    amendment: Amendment


@dataclass(frozen=True, slots=True)
class AmendBinding:
    """Change options of where a source or view is kept."""

    relation: str
    amendment: Amendment


Change = (
    Pause | Resume | AddBindings | DropBindings | AmendEndpoint | AmendSettings | AmendBinding
)


@dataclass(frozen=True, slots=True)
class AlterMaterialization:
    """Change a materialization."""

    name: str
    change: Change


@dataclass(frozen=True, slots=True)
class DropMaterialization:
    """End a materialization; what the endpoint has stays."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ShowMaterializations:
    """List the materializations."""


MaterializationStatement = (
    CreateMaterialization | AlterMaterialization | DropMaterialization | ShowMaterializations
)

CREATE_USAGE = (
    "CREATE MATERIALIZATION [IF NOT EXISTS] name INTO connector (option value, ...)"
    " BIND view (option value, ..., [KEY (columns)]), ... [WITH (setting value, ...)]"
)
ALTER_USAGE = (
    "ALTER MATERIALIZATION name PAUSE | RESUME | ADD view (option value, ...), ..."
    " | DROP BINDING view, ... | [ALTER BINDING view] SET (option = value, ...)"
    " | [ALTER BINDING view] RESET (option, ...) | SET WITH (setting = value, ...)"
    " | RESET WITH (setting, ...)"
)


def create(cursor: Cursor) -> CreateMaterialization:
    """Parse the rest of CREATE MATERIALIZATION. Errors: InvalidStatement."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a name of the materialization")
    cursor.expect("INTO")
    connector = cursor.name("the name of a connector").lower()
    options = _options(cursor)
    cursor.expect("BIND")
    bindings = _bindings(cursor)
    settings = _options(cursor) if cursor.accept("WITH") else {}
    return CreateMaterialization(
        name=name,
        connector=connector,
        options=options,
        bindings=bindings,
        if_not_exists=if_not_exists,
        settings=settings,
    )


def alter(cursor: Cursor) -> AlterMaterialization:
    """Parse the rest of ALTER MATERIALIZATION. Errors: InvalidStatement."""
    name = cursor.name("a name")
    return AlterMaterialization(name, _CHANGES[cursor.choose(tuple(_CHANGES))](cursor))


def _added(cursor: Cursor) -> Change:
    return AddBindings(_bindings(cursor))


def _dropped(cursor: Cursor) -> Change:
    cursor.expect("BINDING")
    relations = [cursor.relation("the name of a view or source")]
    while cursor.accept(","):
        relations.append(cursor.relation("the name of a view or source"))
    _refuse_twice(relations)
    return DropBindings(tuple(relations))


def _set(cursor: Cursor) -> Change:
    is_settings = cursor.accept("WITH")
    return _amended(Amendment(values=_options(cursor)), is_settings=is_settings)


def _reset(cursor: Cursor) -> Change:
    is_settings = cursor.accept("WITH")
    return _amended(Amendment(reset=_option_names(cursor)), is_settings=is_settings)


def _amended(amendment: Amendment, *, is_settings: bool) -> Change:
    return AmendSettings(amendment) if is_settings else AmendEndpoint(amendment)


def _binding_amended(cursor: Cursor) -> Change:
    cursor.expect("BINDING")
    relation = cursor.relation("the name of a view or source")
    if cursor.choose(("SET", "RESET")) == "SET":
        return AmendBinding(relation, Amendment(values=_options(cursor)))
    return AmendBinding(relation, Amendment(reset=_option_names(cursor)))


_CHANGES: Mapping[str, Callable[[Cursor], Change]] = {
    "PAUSE": lambda _: Pause(),
    "RESUME": lambda _: Resume(),
    "ADD": _added,
    "DROP": _dropped,
    "SET": _set,
    "RESET": _reset,
    "ALTER": _binding_amended,
}


def _bindings(cursor: Cursor) -> tuple[Bind, ...]:
    bindings = [_binding(cursor)]
    while cursor.accept(","):
        bindings.append(_binding(cursor))
    _refuse_twice([binding.relation for binding in bindings])
    return tuple(bindings)


def _binding(cursor: Cursor) -> Bind:
    return Bind(cursor.relation("the name of a view or source"), _options(cursor))


def _refuse_twice(relations: Sequence[str]) -> None:
    names = set[str]()
    for relation in relations:
        if relation.casefold() in names:
            raise InvalidStatement(
                f"{relation} appears twice",
                "a materialization binds a view once",
                "keep it a second time with another materialization",
            )
        names.add(relation.casefold())


def _options(cursor: Cursor) -> Options:
    """Options between parentheses."""
    options: dict[str, Value] = {}
    cursor.expect("(")
    while True:
        name = _option_name(cursor)
        if name in options:
            raise InvalidStatement(f"option {name.upper()} appears twice")
        options[name] = _OWN_VALUES.get(name, _value)(cursor, name)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return options


def _option_names(cursor: Cursor) -> tuple[str, ...]:
    """Names of options between parentheses."""
    names: list[str] = []
    cursor.expect("(")
    while True:
        name = _option_name(cursor)
        if name in names:
            raise InvalidStatement(f"option {name.upper()} appears twice")
        names.append(name)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(names)


def _option_name(cursor: Cursor) -> str:
    """The words up to a value; the tokenizer takes some of two, as PARTITION BY, for one."""
    words: list[str] = []
    while (token := cursor.current) is not None and _is_word(cursor.source, token):
        words += cursor.take().text.lower().split()
        if "_".join(words) in _OWN_VALUES:
            break  # the word that follows is its value
    if not words:
        raise cursor.refused("an option")
    return "_".join(words)


def _is_word(source: str, token: Token) -> bool:
    if token.kind in {TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.IDENTIFIER}:
        return False
    words = source[token.start : token.end].split()
    return all(word.isidentifier() and word.upper() not in _CONSTANTS for word in words)


HIDDEN = "password"
"""The option whose value says where a secret is, and is not shown."""

BY_WORD = "backfill_by"
"""The option whose value is a word: BACKFILL BY SPARK."""

_CONSTANTS: Mapping[str, bool] = {"TRUE": True, "FALSE": False}


def _value(cursor: Cursor, name: str) -> Value:
    is_given = cursor.accept("=")
    token = cursor.current
    if token is None:
        raise cursor.refused(f"a value of option {name.upper()}")
    if cursor.at("("):
        return cursor.names(f"a name of option {name.upper()}")
    if not is_given and (cursor.at(",") or cursor.at(")")):
        return True
    for word, constant in _CONSTANTS.items():
        if cursor.accept(word):
            return constant
    if token.kind is TokenType.NUMBER:
        return _number(cursor)
    return cursor.string(f"a value of option {name.upper()}: a text in quotes or a number")


def _word(cursor: Cursor, name: str) -> Value:
    """A word, bare or in quotes, in lower case."""
    cursor.accept("=")
    token = cursor.current
    if token is not None and token.kind is TokenType.STRING:
        return cursor.string(f"a value of option {name.upper()}").lower()
    return cursor.name(f"a word as the value of option {name.upper()}").lower()


def _secret(cursor: Cursor, name: str) -> Value:
    """The text that says where the secret is. Errors: InvalidStatement, without what came."""
    cursor.accept("=")
    token = cursor.current
    if token is None or token.kind is not TokenType.STRING:
        raise InvalidStatement(
            f"expected 'env:NAME' or 'file:PATH' in quotes as the value of {name.upper()}",
            "what came instead is not shown: it may be the secret",
            "write where the secret is found; a statement and the catalog never hold it",
        )
    return cursor.string(f"a value of option {name.upper()}")


def _number(cursor: Cursor) -> int | float:
    text = cursor.take().text
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError as error:
        raise InvalidStatement(f"expected a number, actual {text[:40]}") from error


_OWN_VALUES: Mapping[str, Callable[[Cursor, str], Value]] = {
    HIDDEN: _secret,  # without quotes it is no part of the name, which errors show
    BY_WORD: _word,
}
"""The options whose values are not those of others."""
