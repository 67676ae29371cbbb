from schemas import flow_pb2 as _flow_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Extensions(_message.Message):
    __slots__ = ("acknowledge", "delete", "subranges")
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    SUBRANGES_FIELD_NUMBER: _ClassVar[int]
    acknowledge: bool
    delete: bool
    subranges: bool
    def __init__(self, acknowledge: _Optional[bool] = ..., delete: _Optional[bool] = ..., subranges: _Optional[bool] = ...) -> None: ...

class SpecRequest(_message.Message):
    __slots__ = ("endpoint_type", "endpoint_spec_json")
    ENDPOINT_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    endpoint_type: _flow_pb2.EndpointType
    endpoint_spec_json: str
    def __init__(self, endpoint_type: _Optional[_Union[_flow_pb2.EndpointType, str]] = ..., endpoint_spec_json: _Optional[str] = ...) -> None: ...

class SpecResponse(_message.Message):
    __slots__ = ("endpoint_spec_schema_json", "resource_spec_schema_json", "documentation_url", "extensions")
    ENDPOINT_SPEC_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_SPEC_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_URL_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    endpoint_spec_schema_json: str
    resource_spec_schema_json: str
    documentation_url: str
    extensions: Extensions
    def __init__(self, endpoint_spec_schema_json: _Optional[str] = ..., resource_spec_schema_json: _Optional[str] = ..., documentation_url: _Optional[str] = ..., extensions: _Optional[_Union[Extensions, _Mapping]] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("type", "reason")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FIELD_REQUIRED: _ClassVar[Constraint.Type]
        LOCATION_REQUIRED: _ClassVar[Constraint.Type]
        LOCATION_RECOMMENDED: _ClassVar[Constraint.Type]
        FIELD_OPTIONAL: _ClassVar[Constraint.Type]
        FIELD_FORBIDDEN: _ClassVar[Constraint.Type]
        UNSATISFIABLE: _ClassVar[Constraint.Type]
    FIELD_REQUIRED: Constraint.Type
    LOCATION_REQUIRED: Constraint.Type
    LOCATION_RECOMMENDED: Constraint.Type
    FIELD_OPTIONAL: Constraint.Type
    FIELD_FORBIDDEN: Constraint.Type
    UNSATISFIABLE: Constraint.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    type: Constraint.Type
    reason: str
    def __init__(self, type: _Optional[_Union[Constraint.Type, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ValidateRequest(_message.Message):
    __slots__ = ("materialization", "endpoint_type", "endpoint_spec_json", "bindings")
    class Binding(_message.Message):
        __slots__ = ("resource_spec_json", "collection", "field_config_json")
        class FieldConfigJsonEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        RESOURCE_SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
        COLLECTION_FIELD_NUMBER: _ClassVar[int]
        FIELD_CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
        resource_spec_json: str
        collection: _flow_pb2.CollectionSpec
        field_config_json: _containers.ScalarMap[str, str]
        def __init__(self, resource_spec_json: _Optional[str] = ..., collection: _Optional[_Union[_flow_pb2.CollectionSpec, _Mapping]] = ..., field_config_json: _Optional[_Mapping[str, str]] = ...) -> None: ...
    MATERIALIZATION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    materialization: str
    endpoint_type: _flow_pb2.EndpointType
    endpoint_spec_json: str
    bindings: _containers.RepeatedCompositeFieldContainer[ValidateRequest.Binding]
    def __init__(self, materialization: _Optional[str] = ..., endpoint_type: _Optional[_Union[_flow_pb2.EndpointType, str]] = ..., endpoint_spec_json: _Optional[str] = ..., bindings: _Optional[_Iterable[_Union[ValidateRequest.Binding, _Mapping]]] = ...) -> None: ...

class ValidateResponse(_message.Message):
    __slots__ = ("bindings",)
    class Binding(_message.Message):
        __slots__ = ("constraints", "resource_path", "delta_updates")
        class ConstraintsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Constraint
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Constraint, _Mapping]] = ...) -> None: ...
        CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
        RESOURCE_PATH_FIELD_NUMBER: _ClassVar[int]
        DELTA_UPDATES_FIELD_NUMBER: _ClassVar[int]
        constraints: _containers.MessageMap[str, Constraint]
        resource_path: _containers.RepeatedScalarFieldContainer[str]
        delta_updates: bool
        def __init__(self, constraints: _Optional[_Mapping[str, Constraint]] = ..., resource_path: _Optional[_Iterable[str]] = ..., delta_updates: _Optional[bool] = ...) -> None: ...
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    bindings: _containers.RepeatedCompositeFieldContainer[ValidateResponse.Binding]
    def __init__(self, bindings: _Optional[_Iterable[_Union[ValidateResponse.Binding, _Mapping]]] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("materialization", "version", "dry_run")
    MATERIALIZATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    materialization: _flow_pb2.MaterializationSpec
    version: str
    dry_run: bool
    def __init__(self, materialization: _Optional[_Union[_flow_pb2.MaterializationSpec, _Mapping]] = ..., version: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("action_description",)
    ACTION_DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    action_description: str
    def __init__(self, action_description: _Optional[str] = ...) -> None: ...

class TransactionRequest(_message.Message):
    __slots__ = ("open", "load", "prepare", "store", "commit", "acknowledge")
    class Open(_message.Message):
        __slots__ = ("materialization", "version", "key_begin", "key_end", "driver_checkpoint_json", "extensions")
        MATERIALIZATION_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        KEY_BEGIN_FIELD_NUMBER: _ClassVar[int]
        KEY_END_FIELD_NUMBER: _ClassVar[int]
        DRIVER_CHECKPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
        EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
        materialization: _flow_pb2.MaterializationSpec
        version: str
        key_begin: int
        key_end: int
        driver_checkpoint_json: bytes
        extensions: Extensions
        def __init__(self, materialization: _Optional[_Union[_flow_pb2.MaterializationSpec, _Mapping]] = ..., version: _Optional[str] = ..., key_begin: _Optional[int] = ..., key_end: _Optional[int] = ..., driver_checkpoint_json: _Optional[bytes] = ..., extensions: _Optional[_Union[Extensions, _Mapping]] = ...) -> None: ...
    class Load(_message.Message):
        __slots__ = ("binding", "arena", "packed_keys")
        BINDING_FIELD_NUMBER: _ClassVar[int]
        ARENA_FIELD_NUMBER: _ClassVar[int]
        PACKED_KEYS_FIELD_NUMBER: _ClassVar[int]
        binding: int
        arena: bytes
        packed_keys: _containers.RepeatedCompositeFieldContainer[_flow_pb2.Slice]
        def __init__(self, binding: _Optional[int] = ..., arena: _Optional[bytes] = ..., packed_keys: _Optional[_Iterable[_Union[_flow_pb2.Slice, _Mapping]]] = ...) -> None: ...
    class Prepare(_message.Message):
        __slots__ = ("flow_checkpoint",)
        FLOW_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
        flow_checkpoint: bytes
        def __init__(self, flow_checkpoint: _Optional[bytes] = ...) -> None: ...
    class Store(_message.Message):
        __slots__ = ("binding", "arena", "packed_keys", "packed_values", "docs_json", "exists", "deletes")
        BINDING_FIELD_NUMBER: _ClassVar[int]
        ARENA_FIELD_NUMBER: _ClassVar[int]
        PACKED_KEYS_FIELD_NUMBER: _ClassVar[int]
        PACKED_VALUES_FIELD_NUMBER: _ClassVar[int]
        DOCS_JSON_FIELD_NUMBER: _ClassVar[int]
        EXISTS_FIELD_NUMBER: _ClassVar[int]
        DELETES_FIELD_NUMBER: _ClassVar[int]
        binding: int
        arena: bytes
        packed_keys: _containers.RepeatedCompositeFieldContainer[_flow_pb2.Slice]
        packed_values: _containers.RepeatedCompositeFieldContainer[_flow_pb2.Slice]
        docs_json: _containers.RepeatedCompositeFieldContainer[_flow_pb2.Slice]
        exists: _containers.RepeatedScalarFieldContainer[bool]
        deletes: _containers.RepeatedScalarFieldContainer[bool]
        def __init__(self, binding: _Optional[int] = ..., arena: _Optional[bytes] = ..., packed_keys: _Optional[_Iterable[_Union[_flow_pb2.Slice, _Mapping]]] = ..., packed_values: _Optional[_Iterable[_Union[_flow_pb2.Slice, _Mapping]]] = ..., docs_json: _Optional[_Iterable[_Union[_flow_pb2.Slice, _Mapping]]] = ..., exists: _Optional[_Iterable[bool]] = ..., deletes: _Optional[_Iterable[bool]] = ...) -> None: ...
    class Commit(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Acknowledge(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    open: TransactionRequest.Open
    load: TransactionRequest.Load
    prepare: TransactionRequest.Prepare
    store: TransactionRequest.Store
    commit: TransactionRequest.Commit
    acknowledge: TransactionRequest.Acknowledge
    def __init__(self, open: _Optional[_Union[TransactionRequest.Open, _Mapping]] = ..., load: _Optional[_Union[TransactionRequest.Load, _Mapping]] = ..., prepare: _Optional[_Union[TransactionRequest.Prepare, _Mapping]] = ..., store: _Optional[_Union[TransactionRequest.Store, _Mapping]] = ..., commit: _Optional[_Union[TransactionRequest.Commit, _Mapping]] = ..., acknowledge: _Optional[_Union[TransactionRequest.Acknowledge, _Mapping]] = ...) -> None: ...

class TransactionResponse(_message.Message):
    __slots__ = ("opened", "loaded", "prepared", "committed", "acknowledged")
    class Subrange(_message.Message):
        __slots__ = ("key_begin", "key_end", "flow_checkpoint")
        KEY_BEGIN_FIELD_NUMBER: _ClassVar[int]
        KEY_END_FIELD_NUMBER: _ClassVar[int]
        FLOW_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
        key_begin: int
        key_end: int
        flow_checkpoint: bytes
        def __init__(self, key_begin: _Optional[int] = ..., key_end: _Optional[int] = ..., flow_checkpoint: _Optional[bytes] = ...) -> None: ...
    class Opened(_message.Message):
        __slots__ = ("flow_checkpoint", "subranges")
        FLOW_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
        SUBRANGES_FIELD_NUMBER: _ClassVar[int]
        flow_checkpoint: bytes
        subranges: _containers.RepeatedCompositeFieldContainer[TransactionResponse.Subrange]
        def __init__(self, flow_checkpoint: _Optional[bytes] = ..., subranges: _Optional[_Iterable[_Union[TransactionResponse.Subrange, _Mapping]]] = ...) -> None: ...
    class Loaded(_message.Message):
        __slots__ = ("binding", "arena", "docs_json")
        BINDING_FIELD_NUMBER: _ClassVar[int]
        ARENA_FIELD_NUMBER: _ClassVar[int]
        DOCS_JSON_FIELD_NUMBER: _ClassVar[int]
        binding: int
        arena: bytes
        docs_json: _containers.RepeatedCompositeFieldContainer[_flow_pb2.Slice]
        def __init__(self, binding: _Optional[int] = ..., arena: _Optional[bytes] = ..., docs_json: _Optional[_Iterable[_Union[_flow_pb2.Slice, _Mapping]]] = ...) -> None: ...
    class Prepared(_message.Message):
        __slots__ = ("driver_checkpoint_json", "rfc7396_merge_patch")
        DRIVER_CHECKPOINT_JSON_FIELD_NUMBER: _ClassVar[int]
        RFC7396_MERGE_PATCH_FIELD_NUMBER: _ClassVar[int]
        driver_checkpoint_json: bytes
        rfc7396_merge_patch: bool
        def __init__(self, driver_checkpoint_json: _Optional[bytes] = ..., rfc7396_merge_patch: _Optional[bool] = ...) -> None: ...
    class Committed(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Acknowledged(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    OPENED_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    opened: TransactionResponse.Opened
    loaded: TransactionResponse.Loaded
    prepared: TransactionResponse.Prepared
    committed: TransactionResponse.Committed
    acknowledged: TransactionResponse.Acknowledged
    def __init__(self, opened: _Optional[_Union[TransactionResponse.Opened, _Mapping]] = ..., loaded: _Optional[_Union[TransactionResponse.Loaded, _Mapping]] = ..., prepared: _Optional[_Union[TransactionResponse.Prepared, _Mapping]] = ..., committed: _Optional[_Union[TransactionResponse.Committed, _Mapping]] = ..., acknowledged: _Optional[_Union[TransactionResponse.Acknowledged, _Mapping]] = ...) -> None: ...
