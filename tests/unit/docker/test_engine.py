"""What the scripts of containers import of ours is there: nothing else runs them before CI."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
IMPORT = re.compile(r"^from (streams\S*) import (.+)$", re.MULTILINE)


def test_what_scripts_import_is_there() -> None:
    texts = [path.read_text() for path in (ROOT / "docker").rglob("*.sh")]
    imports = [line for text in texts for line in IMPORT.findall(text)]
    assert imports
    for module, names in imports:
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
