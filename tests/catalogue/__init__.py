"""A sweep over DuckDB's catalogue: every function, cast, key and window over every type.

    python -m tests.catalogue [--family NAME ...] [--function NAME ...] [--seconds 600]

| module | says |
|---|---|
| `values` | a table with a column of every type, and a history in which its rows come and go |
| `signatures` | the calls that DuckDB binds, by function and by type of each argument |
| `candidates` | casts, keys, orders and windows over every type beside those calls |
| `oracle` | DuckDB's word on a candidate: by row, or over the rows of each time |
| `verdict` | the maintained view against that: right, refused, wrong, internal, slow |
| `sweep` | many candidates in one view, taken apart where they are not right |
"""
