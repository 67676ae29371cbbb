"""The bytes on the wire: Avro records, Arrow chunks, keys.

Whoever can read these needs no code of ours.
"""
