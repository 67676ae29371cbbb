"""The files of `docker/` as data: the compose file with its defaults, the Kustomize base."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "kubernetes"
COMMANDS = ("coordinator", "replica", "compaction", "storage", "materialize")
"""The services, by the name that they have everywhere."""

DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def compose() -> Mapping[str, Any]:
    """The compose file, with the default of every variable."""
    text = DEFAULT.sub(r"\1", (DOCKER / "compose.yaml").read_text())
    return dict(yaml.safe_load(text))


def kustomization() -> Mapping[str, Any]:
    return dict(yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text()))


def manifests() -> Iterator[Mapping[str, Any]]:
    """The objects that the base makes, the generated ones too; names without a suffix."""
    base = kustomization()
    for resource in base["resources"]:
        yield from yaml.safe_load_all((KUBERNETES / resource).read_text())
    for generated in base["configMapGenerator"]:
        pairs = (literal.split("=", 1) for literal in generated["literals"])
        metadata = {"name": generated["name"]}
        yield {"kind": "ConfigMap", "metadata": metadata, "data": dict(pairs)}


def of_kind(*kinds: str) -> Mapping[str, Mapping[str, Any]]:
    """The objects of some kinds, by name."""
    return {
        manifest["metadata"]["name"]: manifest
        for manifest in manifests()
        if manifest["kind"] in kinds
    }
