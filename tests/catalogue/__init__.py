"""A sweep over DuckDB's catalogue: every function, cast, key and window over every type.

    python -m tests.catalogue [--family NAME ...] [--function NAME ...] [--seconds 600]

| module | says |
|---|---|
| `values` | a table with a column of every type, and a history in which its rows come and go |
| `candidates` | the calls of `slackwater bench sql`; casts, keys, windows of every type |
| `oracle` | DuckDB's word on a candidate: by row, or over the rows of each time |
| `verdict` | the maintained view against that: right, refused, wrong, internal, slow |
| `sweep` | many candidates in one view, taken apart where they are not right |
"""
