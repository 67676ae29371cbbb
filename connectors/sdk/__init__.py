"""All that the author of a connector imports: `from connectors import sdk`.

The page `connectors/docs/write-a-connector.md` says how they are used.
"""

from connectors.config import form, parsed, schema_text, secret
from connectors.connector import Connector, Refused, Transactor
from connectors.protocol.messages import (
    Extensions,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    Store,
    StoredDocument,
    Subrange,
)
from connectors.sdk.buffered import BufferedTransactor, DocumentSession
from connectors.sdk.checkpoint_table import CheckpointTable, OpenedRange
from connectors.sdk.constraints import document_constraints
from connectors.sql.fence import Fenced
from connectors.transport.stdio import main
from schemas.materialize_pb2 import (
    ApplyRequest,
    ApplyResponse,
    Constraint,
    SpecRequest,
    SpecResponse,
    ValidateRequest,
    ValidateResponse,
)
from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.files import write_whole

__all__ = [
    "ApplyRequest",
    "ApplyResponse",
    "BufferedTransactor",
    "CheckpointTable",
    "Connector",
    "Constraint",
    "Determinate",
    "DocumentSession",
    "Extensions",
    "Fenced",
    "Flush",
    "Flushed",
    "Indeterminate",
    "InvalidUsage",
    "Load",
    "Loaded",
    "Open",
    "OpenedRange",
    "Refused",
    "SpecRequest",
    "SpecResponse",
    "Store",
    "StoredDocument",
    "Subrange",
    "Transactor",
    "ValidateRequest",
    "ValidateResponse",
    "document_constraints",
    "form",
    "main",
    "parsed",
    "schema_text",
    "secret",
    "write_whole",
]
