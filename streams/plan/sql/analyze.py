"""EXPLAIN ANALYZE: the statement and its grammar."""

from dataclasses import dataclass

from streams.plan.sql import select
from streams.plan.sql.tokens import Cursor

USAGE = "EXPLAIN ANALYZE [AS SVG] [MATERIALIZED VIEW] name"


@dataclass(frozen=True, slots=True)
class ExplainAnalyze:
    """Show the plan of a running view with the work of each operator."""

    name: str
    picture: bool = False


def explain_analyze(cursor: Cursor) -> ExplainAnalyze:
    """Return the statement behind its first words. Errors: InvalidStatement."""
    picture = cursor.accept("AS", "SVG")
    cursor.accept("MATERIALIZED", "VIEW")
    if any(cursor.at(word) for word in select.WORDS):
        raise cursor.refused("the name of a materialized view, which runs")
    return ExplainAnalyze(cursor.relation("the name of a materialized view"), picture)
