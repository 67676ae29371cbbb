"""The bytes on the wire: Avro records, Arrow chunks, keys.

A client that reads and writes these needs no code of this project.
"""
