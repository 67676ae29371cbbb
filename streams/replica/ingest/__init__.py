"""Ingestion: exact ranges of a raw Kafka topic become updates of a collection.

An ingestion is a dataflow whose import is a raw topic. Its position is a map from partition to
the next offset to read, bound to a time by the Append that carries both (rule 18);
`streams.compute.reclocking` decides how far each interval reaches. This package turns the
messages of an interval into updates. It runs no steps and appends nothing.

In the order in which a step uses them:

`ranges`    pure. `impediment` returns why a topic cannot be read on, if so; `slices` makes
            of `reclocking.ranges` what the rest works with; `windows` cuts a snapshot into
            pieces in the order of positions; `assign` spreads slices over tasks.
`plan`      `dataflow(source, columns)`: the plan of an ingestion (Source, or Source and
            Upsert); `import_columns`, what its only import looks like.
`source`    what a task does. `load` fetches, decodes and applies the envelope; `replay` reads
            the source's own shard as messages. Both give the updates of the import, for
            `engine.start`, and errors, to be added to those that `start` emits.
`envelope`  messages to updates, without Kafka.
`decode`    JSON texts to columns: `batch` for all that is regular, `decode_one` and `scan` for
            the rest; `fields` says what each declared type accepts, `nested` how values with
            parts are taken apart, `layout` which members are read for the columns.
`refusals`  messages that cannot be decoded, by ON ERROR.
`keys`      keys of messages, by their format; `metadata` the parts of messages as columns.

A large first interval is cut by `windows`; all pieces share its time, and only the whole is
appended. When a source's own shard is replayed, all chunks of one batch of the shard belong
into one call of `replay`: rows that come and go at one time must be seen together.
"""
