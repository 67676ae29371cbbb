"""Other systems on the same queries: scripts that run in environments of their own.

A script imports nothing of ours, for its environment has only the system it speaks for:

    <python> on_flink.py   <query> <inputs> <workers> <batch> [<changelog>]
    <python> on_pathway.py <query> <inputs> <workers> <batch> [<changelog>]

`inputs` holds `<kind>/*.json`. Without `changelog` the run is timed and its output dropped;
with it, the changelog is written there, for its contents to be compared. The last line of
standard output is a JSON object: `seconds` and `cpu_seconds`.
"""
