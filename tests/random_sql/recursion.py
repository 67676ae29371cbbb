"""Queries that read themselves: WITH RECURSIVE and WITH MUTUALLY RECURSIVE over numbers."""

from tests.random_sql import relations
from tests.random_sql.scalars import link, of_kind
from tests.random_sql.tables import Term
from tests.random_sql.writer import Select, Writer


def recursive(writer: Writer) -> Select:
    """WITH RECURSIVE, a few iterations deep."""
    chance, name = writer.chance, writer.alias("q")
    base = _base(writer, "0")
    joined, offered = _joined(writer, name)
    step = chance.pick(f"{name}.x + 1", of_kind(writer, offered, "number").sql, f"{name}.x")
    bound = f"{name}.n < {chance.pick(1, 2, 3)}"
    term = chance.pick(
        f"SELECT ({step})::BIGINT, {name}.n + 1 FROM {joined} WHERE {bound}",
        f"SELECT {name}.x + 1, {name}.n + 1 FROM {name} WHERE {bound}",
        f"SELECT max({step})::BIGINT, {name}.n + 1 FROM {joined}"
        f" WHERE {bound} GROUP BY {name}.n",
    )
    verb = chance.pick("UNION", "UNION ALL")
    head = f"WITH RECURSIVE {name}(x, n) AS ({base} {verb} {term})"
    return _used(writer, head, [name])


def mutual(writer: Writer) -> Select:
    """Two queries that read one another, for some iterations."""
    chance = writer.chance
    one, other = writer.alias("q"), writer.alias("q")
    bodies = []
    for name, read in ((one, other), (other, one)):
        base = _base(writer, "0::BIGINT")
        joined, offered = _joined(writer, read)
        number = of_kind(writer, offered, "number").sql
        step = chance.pick(f"{read}.x", number, f"{read}.x + 1")
        term = chance.pick(
            f"SELECT ({step})::BIGINT, {read}.n FROM {joined}",
            f"SELECT {read}.x, {read}.n + 1 FROM {read} WHERE {read}.n < 2",
            f"SELECT {read}.x, count(*) FROM {joined} GROUP BY {read}.x",
            f"SELECT {step}, {read}.n FROM {joined}"
            f" WHERE {read}.x NOT IN (SELECT x FROM {name})",
        )
        bodies.append(f"{base} {chance.pick('UNION', 'UNION', 'UNION ALL')} {term}")
    limit = f"(RETURN AT RECURSION LIMIT {chance.pick(1, 2, 3, 4)})"
    bound = ", ".join(
        f"{name}(x BIGINT, n BIGINT) AS ({body})"
        for name, body in zip((one, other), bodies, strict=True)
    )
    return _used(writer, f"WITH MUTUALLY RECURSIVE {limit} {bound}", [one, other])


def _base(writer: Writer, second: str) -> str:
    with writer.within():
        source, terms = relations.source(writer, 0)
        start = of_kind(writer, terms, "number").sql
        where = relations.where(writer, terms, [])
    return f"SELECT {start}::BIGINT, {second} FROM {source}{where}"


def _joined(writer: Writer, name: str) -> tuple[str, list[Term]]:
    own = [Term(f"{name}.x", "number"), Term(f"{name}.n", "number")]
    other, offered = relations.relation(writer, 0)
    join = writer.chance.pick("JOIN", "JOIN", "LEFT JOIN")
    return f"{name} {join} {other} ON {link(writer, own[:1], offered)}", offered


def _used(writer: Writer, head: str, names: list[str]) -> Select:
    for name in names:
        writer.named[name] = [Term("x", "number"), Term("n", "number")]
    if writer.chance.maybe(50):
        name = writer.chance.among(names)
        body = f"SELECT x, n, count(*) AS m FROM {name} GROUP BY x, n"
        return f"{head} {body}", [Term(name, "number") for name in ("x", "n", "m")]
    body, columns = writer.write(writer, 0)
    return f"{head} {body}", columns
