"""Ingestion: exact ranges of a raw Kafka topic become updates of a collection.

An ingestion is a dataflow whose import is a raw topic. Its position is a map from partition to
the next offset to read, bound to a time by the Append that carries both (rule 18). What this
package holds is everything between the two: which ranges come next, what their messages mean,
and the physical plan of the envelope. It steps nothing and appends nothing by itself.

In the order in which a step uses them:

`ranges`    pure. `news(bound, ends)` says which offsets are there to be read, or `Stalled` when
            some can no longer be had; `take(slices, budget)` is the share of one micro-batch;
            `windows(slices, budget)` cuts the first snapshot into pieces in position order;
            `assign(slices, tasks)` spreads a share over tasks; `bind(bound, slices)` is the
            `to_offsets` of the Append.
`watch`     `Watch` polls the ends of many topics in a thread of the scheduler's process.
`plan`      `dataflow(source, columns)`: the Dataflow of an ingestion (Source, or Source and
            Upsert), and `import_columns(source, columns)`, what its only import looks like.
`source`    `load(source, columns, slices, time, resources)`: what a task of the data source
            does: fetch, decode, apply the envelope. Returns `(updates, errors)`, the import's
            table c0..cn, time, diff for `engine.start` and a table error, time, diff to be
            added to what `start` emits as errors.
`envelope`  messages to `(updates, errors)`, without Kafka.
`decode`    JSON texts to columns, vectorised; `scan` reads one odd message, slowly; `fields`
            says what each declared type accepts.
"""
