"""The runs of `make test`: what one leaves out another runs, and each collects what it runs."""

import re
from pathlib import Path

from hypothesis import settings
from hypothesis.internal.conjecture import providers

ROOT = Path(__file__).parent.parent.parent
MARK = re.compile(r"mark\.integration\b")
E2E = re.compile(r"mark\.e2e\b")


def legs() -> dict[str, str]:
    """The arguments of pytest in each target that calls it once, without variables."""
    text = (ROOT / "Makefile").read_text()
    variables = dict(re.findall(r"^([A-Z]+) := (.*)$", text, re.MULTILINE))
    recipe = re.compile(
        r"^(test-[a-z]+): (?:setup|class-archive) #.*\n\t\$\(RUN\)/python -m pytest (.*)$",
        re.MULTILINE,
    )

    def expanded(reference: re.Match[str]) -> str:
        name, prefix = reference[1], "--ignore=" if reference[2] else ""
        return re.sub(r"(?<!\S)(?=tests/)", prefix, variables[name])

    return {
        target: re.sub(r"\$\(([A-Z]+)((?::%=--ignore=%)?)\)", expanded, arguments)
        for target, arguments in recipe.findall(text)
        if not target.startswith("test-long")
    }


def places(arguments: str) -> set[str]:
    return set(re.findall(r"(?<!=)\btests/\S+", arguments)) - left_out(arguments)


def left_out(arguments: str) -> set[str]:
    return set(re.findall(r"--ignore=(\S+)", arguments))


def test_what_a_leg_leaves_out_another_runs() -> None:
    units = [leg for leg in legs().values() if "not integration" in leg]
    others = [leg for leg in legs().values() if "not integration" not in leg]
    assert (len(units), len(others)) == (7, 3)
    for group in (units, others):
        excluded = set[str]().union(*map(left_out, group))
        assert excluded
        assert excluded <= set[str]().union(*map(places, group))
    assert any(not places(unit) for unit in units)  # the rest of the tree


def test_only_legs_on_a_broker_or_spark_have_tests_that_need_one() -> None:
    services = places(legs()["test-services"])
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if MARK.search(path.read_text())
    } - {Path(__file__).relative_to(ROOT).as_posix()}
    assert len(marked) > 20
    assert {path for path in marked if "/".join(path.split("/")[:2]) not in services} == set()


def test_what_needs_a_container_engine_is_in_a_place_of_its_own() -> None:
    """`make e2e` runs that place, and no leg of `make test` runs a test with the mark."""
    marked = {path for path in (ROOT / "tests").rglob("*.py") if E2E.search(path.read_text())}
    assert marked
    assert {path.parent for path in marked} == {ROOT / "tests" / "e2e"}
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^E2E := .* -m pytest tests/e2e$", makefile, re.MULTILINE)
    assert all("e2e" in leg or places(leg) for leg in legs().values())


def test_the_examples_of_a_property_follow_from_the_test_alone() -> None:
    """Hypothesis draws literals of the loaded modules too, but not in `make test` (D251)."""
    if settings().derandomize:
        assert not len(providers.HypothesisProvider(None)._local_constants)
