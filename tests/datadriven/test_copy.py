"""Where COPY may write, as scripts: `allow` has the prefixes, `find` the URI of a statement."""

from pathlib import Path

import pytest

from streams.copies.targets import NOWHERE, CopyTargets
from streams.errors import SlackwaterError
from tests.support.datadriven import Case, run, scripts


class Places:
    def __init__(self) -> None:
        self.targets = NOWHERE

    def handle(self, case: Case) -> str:
        try:
            if case.directive == "allow":
                self.targets = CopyTargets.of(case.input.splitlines())
                return "allowed"
            assert case.directive == "find", case.directive
            target = self.targets.find(case.input.encode().decode("unicode_escape"))
        except SlackwaterError as error:
            return str(error)
        secrets = ", ".join(target.secrets)
        return f"{target.shown}\n{target.uri}\n{target!r}" + (f"\n{secrets}" if secrets else "")


@pytest.mark.parametrize("script", scripts("copy"), ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    run(script, Places().handle)
