"""A database's own queries, each maintained as a view against DuckDB's answers.

    python -m tests.suites DIRECTORY [--tables] [--seconds 3600] [--share 1/2] [--keep FILE]

The directory holds scripts of sqllogictest (`.slt`, `.test`), or statements with a semicolon
each (`.sql`). They are no part of this repository, which has of them but the figures in
`streams/docs/RESULTS.md`. The same command goes on where the FILE ends.

| module | says |
|---|---|
| `scripts` | the statements of a file |
| `replay` | a DuckDB that has carried out a file's statements, and a query's tables there |
| `judge` | a query as a view over a random history of those tables, against DuckDB |
"""
