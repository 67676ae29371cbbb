"""The materialization protocol, without a transport: messages, their form, their order.

A driver keeps collections in an endpoint through a connector. Both sides run the same machine
(`connectors.protocol.session`) over messages that are named for phases
(`connectors.protocol.messages`). `connectors.protocol.arena_codec` encodes them as the bytes of
2021.
Whatever a side does that the protocol does not have is a `Violation`: it says which side broke
which rule, and the state is what it was before.
"""
