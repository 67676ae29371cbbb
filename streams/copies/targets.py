"""The places that COPY may write to, and the URIs that name them. Pure.

Where a coordinator may write is a setting: prefixes of URIs. They may have what a file system
asks for, as `s3://KEY:SECRET@bucket/exports?endpoint_override=...`. The URI of a statement has
only a scheme, a place and a path, and lies below a prefix, whose credentials and options it is
written with. So a statement holds no secret, and cannot choose the server that gets them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit

from streams.errors import InvalidStatement, InvalidUsage

SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Schemes of file systems that pyarrow knows."""

SETTING = "--copy-to"

LONGEST = 1024
"""Characters of a URI."""

_FORM = "a URI as file:///directory/name or s3://bucket/name"


_SECRET = re.compile(r"secret|key|token|password|signature", re.IGNORECASE)


class _Unfit(Exception):
    """Why a text is no URI to write to: what came."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A scheme, a host or bucket, and the names of the path."""

    scheme: str
    host: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}/{'/'.join(map(quote, self.names))}"


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """A directory to write: `uri` for the file system, which may hold secrets; `shown` none.

    It lies below `prefix_uri`.
    """

    shown: str
    uri: str = field(repr=False)
    prefix_uri: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def redacted(self, text: str) -> str:
        """Return a text without the secrets of the URI."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class _Prefix:
    place: _Place
    split: SplitResult = field(repr=False)


@dataclass(frozen=True, slots=True)
class CopyTargets:
    """The prefixes below which statements may write; none: nowhere."""

    prefixes: tuple[_Prefix, ...] = ()

    @staticmethod
    def of(uris: Iterable[str]) -> "CopyTargets":
        """Return the targets of a setting. Errors: InvalidUsage, which shows no secret."""
        return CopyTargets(tuple(_prefix(uri) for uri in uris))

    def find(self, uri: str) -> CopyTarget:
        """Return the target that a statement names. Errors: InvalidStatement."""
        place = _checked(uri)
        for prefix in self.prefixes:
            if _is_below(place, prefix.place):
                return _target(place, prefix.split)
        raise self._refused(place)

    def _refused(self, place: _Place) -> InvalidStatement:
        shown = ", ".join(str(prefix.place) for prefix in self.prefixes)
        return InvalidStatement(
            f"COPY may not write to {place}",
            f"expected a URI below one of {shown}" if shown else "no place is allowed",
            f"start what writes, the coordinator or a replica, with {SETTING} URI"
            " (SLACKWATER_COPY_TO) to allow what is below that URI",
        )


NOWHERE = CopyTargets()


def refuse_unfit(uri: str) -> None:
    """Errors: InvalidStatement for what no statement may name, as a URI with credentials."""
    _checked(uri)


def _checked(uri: str) -> _Place:
    """Return what a statement names. Errors: InvalidStatement."""
    try:
        return _named(uri)
    except _Unfit as why:
        raise InvalidStatement(
            f"COPY TO expected {_FORM}, actual {why}",
            "its path has no empty names, '.' and '..'; credentials and options of a file"
            f" system are in the {SETTING} URI of the coordinator or replica",
            "write TO 'file:///directory/name'",
        ) from None


def _prefix(uri: str) -> _Prefix:
    try:
        split = _split(uri)
        return _Prefix(_place(split), split)
    except _Unfit as why:
        raise InvalidUsage(f"{SETTING}: expected {_FORM}, actual {why}") from None


def _named(uri: str) -> _Place:
    """Return what a statement names. Errors: _Unfit."""
    split = _split(uri)
    if "@" in split.netloc or split.query:
        raise _Unfit("one with credentials or options")
    return _place(split)


def _split(uri: str) -> SplitResult:
    """Errors: _Unfit."""
    if len(uri) > LONGEST:
        raise _Unfit(f"{len(uri)} characters, of at most {LONGEST}")
    if any(not character.isprintable() for character in uri) or "\\" in uri:
        raise _Unfit("one with a control character or a backslash")
    try:
        split = urlsplit(uri)
    except ValueError:
        raise _Unfit("a text that is none") from None
    if not uri[len(split.scheme) :].startswith("://"):
        raise _Unfit("a text without a scheme and ://")
    if split.scheme not in SCHEMES:
        raise _Unfit(f"scheme {split.scheme[:20]}, not one of {', '.join(SCHEMES)}")
    if split.fragment:
        raise _Unfit("one with a fragment")
    return split


def _place(split: SplitResult) -> _Place:
    """Errors: _Unfit."""
    host = split.netloc.rpartition("@")[2]
    if split.scheme == "file" and host:
        raise _Unfit(f"a host in a file URI, which begins with file:///: {host[:40]}")
    if split.scheme in {"s3", "gs", "gcs"} and not host:
        raise _Unfit("one without a bucket")
    try:
        path = unquote(split.path, errors="strict")
    except UnicodeDecodeError:
        raise _Unfit("one whose path is no UTF-8") from None
    names = tuple(path.removeprefix("/").removesuffix("/").split("/"))
    if names == ("",):
        names = ()
    for name in names:
        if name in {"", ".", ".."} or not name.isprintable() or "\\" in name:
            raise _Unfit("a path with an empty name, '.', '..' or a control character")
    return _Place(split.scheme, host, names)


def _is_below(place: _Place, prefix: _Place) -> bool:
    count = len(prefix.names)
    return (
        (place.scheme, place.host) == (prefix.scheme, prefix.host)
        and len(place.names) > count
        and place.names[:count] == prefix.names
    )


def _target(place: _Place, prefix: SplitResult) -> CopyTarget:
    path = "/" + "/".join(quote(name) for name in place.names)
    options = [option.partition("=") for option in prefix.query.split("&")]
    parts = [
        *prefix.netloc.rpartition("@")[0].split(":"),
        *(value for name, _, value in options if _SECRET.search(name)),
    ]
    secrets = {secret for part in parts for secret in (part, unquote(part)) if secret}
    return CopyTarget(
        shown=str(place),
        uri=prefix._replace(path=path).geturl(),
        prefix_uri=prefix.geturl(),
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
    )
