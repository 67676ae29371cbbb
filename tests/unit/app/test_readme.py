"""What the README shows in Python runs."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
TITLES = [
    re.findall(r"^## (.*)$", README.split(each)[0], re.MULTILINE)[-1] for each in EXAMPLES
]


@pytest.mark.parametrize("example", EXAMPLES, ids=TITLES)
def test_an_example_of_the_readme_runs(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})


def test_storage_and_the_check_of_counts_have_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = [each for each in EXAMPLES if "Storage.memory(checks_counts=True)" in each]
    exec(compile(example, "README.md", "exec"), {})
    refused, contents, changes = capsys.readouterr().out.splitlines()
    assert refused.endswith("row (pear, 3) would be there -1 times at 12")
    assert contents == "[] {1}"
    assert changes == "[{'c0': 'pear', 'time': 4, 'diff': 2}] {}"
