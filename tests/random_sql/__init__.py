"""Random SQL: queries of the whole language over changing tables, and DuckDB's word on them.

    python -m tests.random_sql --cases 1000 --seed 7 [--engine spark] [--keep DIRECTORY]

| module | says |
|---|---|
| `chance` | what decides: numbers that hypothesis draws, so that failures shrink |
| `tables` | columns of every type, and rows that come, go and come back |
| `writer` | what is in scope while a query is written, and how ties are broken in it |
| `scalars`, `nested` | expressions |
| `relations`, `nearest`, `derived`, `subqueries` | relations and subqueries |
| `groups`, `windows` | aggregates and windows |
| `selects`, `recursion` | whole queries |
| `case` | tables, query and cuts of time; the same as a script |
| `judge` | the view against DuckDB at every time: what is compared, and what is not |
| `constructs` | what of the language a query uses, so that nothing is left out unseen |
| `search` | many cases, and the smallest one that fails |

A part that is added to a query's parts turns up in all others. The scripts of failures are
kept in `tests/datadriven/sql` once they are mended.
"""
