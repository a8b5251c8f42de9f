"""The rules of docs/design.md that a machine can check, each as one test over the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.kit.kinds import FOLDERS_IN_ORDER, TABLES, Kind, kind_of
from tests.kit.source_tree import (
    LINKED,
    ROOT,
    Import,
    Module,
    folder_graphs,
    folder_name,
    groups,
    length,
    modules,
    packages,
    python_files,
)
from tests.pages import sdk
from tests.pages.__main__ import stale

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES = packages()
EVERYWHERE = [*MODULES.values(), *modules("tests"), *modules("bench")]

MAY_IMPORT = {
    "broker": ("store", "remoting"),
    "aerobee": ("remoting", "store.format"),
    "store": (),
    "remoting": (),
}
SHARED = ("aerobee.setting", "aerobee.field_docs", "aerobee.threads")
"""What every package may import: they import nothing of ours."""
APPLICATIONS = {"broker.console": ("aerobee",)}
"""Parts that are applications of another package: the console runs commands, over the SDK."""
DOORS = {"aerobee.cli": ("broker", "store"), "aerobee.testing": ("broker", "store")}
"""Who may call into another package's entry function, imported inside the function that does."""

IMPURE = {
    "anyio", "asyncio", "os", "random", "secrets", "select", "selectors", "shutil", "socket",
    "subprocess", "tempfile", "threading", "time", "trio",
}  # fmt: skip
"""What pure code may not use: clocks, disks, sockets, threads, randomness."""
DISK_DOOR = (
    "store.files.system_clock",
    "store.files.disk",
    "store.files.machine",
    "store.files.descriptors",
)
"""Time comes from the first; all calls of the third go through the second."""
DISK_MODULES = {"fcntl", "os", "random", "shutil", "tempfile", "time"}
DISK_CALLS = {"open", "io.open", "mmap", "mmap.mmap"}
"""What the store reaches through its one door only."""


def ours(module: Module, *, typing: bool = False) -> Iterator[Import]:
    """Imports of our own packages; those for type checkers only when asked for."""
    for found in module.imports:
        if found.top in MAY_IMPORT and (typing or not found.typing):
            yield found


def below(target: str, allowed: tuple[str, ...]) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in allowed)


def lines(*found: object) -> str:
    return "\n".join(str(one) for one in found)


def test_packages_import_one_way() -> None:
    wrong = []
    for module in MODULES.values():
        doors = [to for door, to in DOORS.items() if below(module.name, (door,))]
        for found in ours(module, typing=True):
            same = found.top == module.top or below(found.target, SHARED)
            allowed = same or below(found.target, MAY_IMPORT[module.top])
            uses = [to for part, to in APPLICATIONS.items() if below(module.name, (part,))]
            by_use = any(below(found.target, to) for to in uses)
            by_door = (found.lazy or found.typing) and any(below(found.target, to) for to in doors)
            if not (allowed or by_use or by_door):
                wrong.append(found)
    assert not wrong, lines(*wrong)


def test_files_import_their_own_kind_and_those_before_it() -> None:
    wrong = []
    for module in MODULES.values():
        kind = kind_of(module)
        if kind is None:
            continue
        for found in ours(module):
            target = MODULES.get(found.target)
            if target is not None and target.top == module.top:
                other = kind_of(target)
                if other is not None and other > kind:
                    wrong.append(f"{found}: {kind.name} imports {other.name}")
    assert not wrong, lines(*wrong)


def test_every_file_that_has_a_kind_exists() -> None:
    named = {
        ".".join(part for part in (package, folder, name) if part)
        for package, table in TABLES.items()
        for folders in table.values()
        for folder, names in folders.items()
        for name in names
    }
    assert named <= set(MODULES), lines(*(named - set(MODULES)))


@pytest.mark.parametrize("package", FOLDERS_IN_ORDER)
def test_folders_import_one_way(package: str) -> None:
    """What lies at the root of the package is for all of them, but for the door and what stands
    on it."""
    order = {name: number for number, name in enumerate(FOLDERS_IN_ORDER[package])}
    inside = [module for module in MODULES.values() if module.top == package and module.room]
    assert {module.room for module in inside} == order.keys()
    page = (ROOT / "docs" / "design.md").read_text()
    rows = r"\n".join(rf"\| `{name}/` \| .*" for name in order)
    assert re.search(rows, page), "design.md lists them in this order"
    wrong = []
    for module in inside:
        for found in ours(module, typing=True):
            target = MODULES.get(found.target)
            if target is None or target.top != package or target.path.name == "__init__.py":
                continue
            above = kind_of(target) in (Kind.HANDLERS, Kind.ASSEMBLY) and not target.room
            if above or (target.room and order[target.room] > order[module.room]):
                wrong.append(found)
    assert not wrong, lines(*wrong)


def test_the_two_sides_of_a_connection_do_not_know_each_other() -> None:
    sides = {"server": "client", "client": "server"}
    wrong = [
        found
        for module in MODULES.values()
        if module.top == "remoting" and module.room in sides
        for found in ours(module, typing=True)
        if below(found.target, (f"remoting.{sides[module.room]}",))
    ]
    assert not wrong, lines(*wrong)


def test_pure_code_uses_no_clock_disk_socket_thread_or_randomness() -> None:
    wrong = [
        found
        for module in MODULES.values()
        if kind_of(module) is Kind.PURE
        for found in module.imports
        if found.top in IMPURE and not found.typing
    ]
    assert not wrong, lines(*wrong)


def test_steps_of_the_client_decide_without_input_or_output() -> None:
    steps = [m for m in MODULES.values() if below(m.name, ("aerobee.client.steps",))]
    wrong = [
        found
        for module in steps
        for found in module.imports
        if not found.typing
        and (
            found.top in IMPURE
            or below(found.target, ("aerobee.client.aio", "aerobee.client.blocking"))
        )
    ]
    assert steps
    assert not wrong, lines(*wrong)


def test_handlers_see_no_socket_and_no_file() -> None:
    wrong = [
        found
        for module in MODULES.values()
        if kind_of(module) is Kind.HANDLERS and module.top == "broker"
        for found in module.imports
        if found.top in {"socket", "os", "mmap", "select", "pathlib", "shutil"}
        or (found.top == "store" and kind_of(MODULES[found.target]) is Kind.IO)
        or below(found.target, ("remoting.server.selector",))
    ]
    assert not [found for found in wrong if not found.typing], lines(*wrong)


def test_the_store_reaches_the_system_through_its_one_door() -> None:
    wrong: list[object] = []
    for module in MODULES.values():
        if module.top != "store" or module.name in DISK_DOOR:
            continue
        wrong += [
            found for found in module.imports if found.top in DISK_MODULES and not found.typing
        ]
        wrong += [
            f"{module.place}:{node.lineno} calls {called}"
            for called, node in module.calls
            if called in DISK_CALLS
        ]
    assert not wrong, lines(*wrong)


def test_services_read_the_clock_that_they_are_given() -> None:
    wrong = [
        found
        for module in MODULES.values()
        if kind_of(module) is Kind.SERVICES
        for found in module.imports
        if found.top in {"time", "datetime", "random"} and not found.typing
    ]
    assert not wrong, lines(*wrong)


def test_the_server_side_starts_threads_of_its_own_where_no_task_can_do_it_only() -> None:
    starters = {
        module.name
        for module in MODULES.values()
        if not below(module.name, ("aerobee", "remoting.client"))
        for called, _ in module.calls
        if called in {"threading.Thread", "Thread", "ThreadPoolExecutor"}
    }
    assert starters <= {
        "store.files.sync_thread",
        "broker.process.log_stream",
        "broker.process.signals",
        "broker.process.stall_watch",
    }


def test_only_the_metrics_module_knows_prometheus() -> None:
    users = {
        module.name
        for module in MODULES.values()
        for found in module.imports
        if found.top == "prometheus_client"
    }
    assert users <= {"broker.metrics.metrics"}


def test_only_the_engine_knows_the_library_of_http2() -> None:
    users = {
        module.name
        for module in MODULES.values()
        for found in module.imports
        if found.top == "ngh2"
    }
    assert users == {"remoting.http2.engine"}


def test_our_own_imports_are_absolute() -> None:
    wrong = [
        found
        for module in MODULES.values()
        for found in module.imports
        if found.target.startswith(".")
    ]
    assert not wrong, lines(*wrong)


def test_nothing_is_imported_by_the_name_of_its_folder() -> None:
    wrong = [
        f"{module.place}:{node.lineno}"
        for module in EVERYWHERE
        for node in module.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
        if below(name, LINKED)
    ]
    assert not wrong, lines(*wrong)


def test_no_folders_import_each_other() -> None:
    knots = {folder: groups(graph) for folder, graph in folder_graphs(MODULES).items()}
    assert not any(knots.values()), knots


def loaded_by(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after a statement."""
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {folder_name(name) for name in done.stdout.split()}


def test_importing_the_sdk_loads_no_server() -> None:
    loaded = loaded_by("import aerobee")
    heavy = {"broker", "trio", "hypercorn", "starlette", "prometheus_client", "pyspark", "pyarrow"}
    assert not loaded & (heavy | {"yaml", "rich"})
    store = {name for name in loaded if below(name, ("store",))}
    extra = {name for name in store if not below(name, ("store.format",))}
    assert extra <= {"store", "store.errors"}
    assert not {name for name in loaded if below(name, ("remoting.server",))}


@pytest.mark.parametrize("package", ["store", "remoting"])
def test_importing_a_package_loads_nothing_of_the_others(package: str) -> None:
    loaded = loaded_by(f"import aerobee.{package}")
    others = set(MAY_IMPORT) - {package, "aerobee"}
    assert not {name for name in loaded if below(name, tuple(others))}


def handlers() -> Iterator[tuple[Module, ast.ExceptHandler]]:
    """Every `except` that ends what it caught; one that cleans up and raises again does not."""
    for module in MODULES.values():
        for node in module.nodes:
            if isinstance(node, ast.ExceptHandler) and not isinstance(node.body[-1], ast.Raise):
                yield module, node


def catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = "" if handler.type is None else ast.unparse(handler.type)
    return not kinds or bool(re.search(r"\b(Base)?Exception\b", kinds))


def test_nothing_swallows_every_exception() -> None:
    silent = [
        f"{module.place}:{handler.lineno}"
        for module, handler in handlers()
        if catches_all(handler)
        and all(isinstance(step, ast.Pass | ast.Continue) for step in handler.body)
    ]
    assert not silent, lines(*silent)


def swallowers() -> Iterator[str]:
    """Every context manager that may end what was raised inside of it: it returns a bool."""
    for module in MODULES.values():
        for node in module.nodes:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name in ("__exit__", "__aexit__")
                and not (node.returns is None or ast.unparse(node.returns) == "None")
            ):
                yield f"{module.place}:{node.lineno}"


def test_catching_every_exception_is_for_borders_only() -> None:
    broad = [f"{m.place}:{handler.lineno}" for m, handler in handlers() if catches_all(handler)]
    # Requests of remoting that are served at once, where each microsecond counts; the border of all
    # others, of gRPC and of what waits; the thread that syncs.
    assert len([*broad, *swallowers()]) <= 3, lines(*broad, *swallowers())


def test_s10_nothing_runs_what_it_reads() -> None:
    """S10: no pickle, no YAML objects, no extension types of msgpack."""
    banned = {"pickle", "marshal", "shelve", "dill", "imp"}
    # What users pickle is tested where their errors are.
    wrong: list[object] = [
        found
        for module in EVERYWHERE
        for found in module.imports
        if found.top in banned and module.place != "tests/aerobee/test_errors.py"
    ]
    calls = {
        "eval",
        "yaml.load",
        "yaml.load_all",
        "yaml.unsafe_load",
        "yaml.full_load",
        "os.system",
    }
    for module in EVERYWHERE:
        for called, node in module.calls:
            words = {word.arg: word.value for word in node.keywords}
            shell = "shell" in words and ast.unparse(words["shell"]) == "True"
            hooks = called.startswith("msgpack.") and words.keys() & {
                "ext_hook",
                "object_hook",
                "list_hook",
            }
            if called in calls or shell or hooks:
                wrong.append(f"{module.place}:{node.lineno} calls {called}")
    assert not wrong, lines(*wrong)


FEATURES = {
    name: module
    for name, module in MODULES.items()
    if module.top == "broker" and name.endswith(".feature") and name != "broker.core.feature"
}


def test_the_broker_is_the_sum_of_its_features() -> None:
    added = {found.target for found in ours(MODULES["broker.broker"])}
    assert FEATURES.keys() <= added, lines(*(FEATURES.keys() - added))
    page = (ROOT / "docs" / "design.md").read_text()
    unsaid = [module.room for module in FEATURES.values() if f"| `{module.room}/` |" not in page]
    assert not unsaid, lines(*unsaid)


def test_a_feature_is_given_others_and_builds_none() -> None:
    wrong = [
        found
        for module in FEATURES.values()
        for found in ours(module)
        if found.target in FEATURES or found.target == "broker.broker"
    ]
    assert not wrong, lines(*wrong)


def test_a_feature_is_a_folder_of_few_files() -> None:
    """Of as many as its concept has; with more than these it is two concepts."""
    sizes = {
        module.room: sum(path.name != "__init__.py" for path in module.path.parent.glob("*.py"))
        for module in FEATURES.values()
    }
    large = [f"broker/{room}: {size} files" for room, size in sizes.items() if size > 16]
    assert not large, lines(*large)


def test_a_part_of_the_broker_is_given_seven_things_at_most() -> None:
    """Records are made of more: they declare their slots."""
    long = []
    for module in MODULES.values():
        for node in module.nodes if module.top == "broker" else ():
            if not isinstance(node, ast.ClassDef) or "__slots__" in ast.unparse(node):
                continue
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    given = method.args
                    count = len([*given.posonlyargs, *given.args, *given.kwonlyargs]) - 1
                    if count > 7:
                        long.append(f"{module.place}:{method.lineno} {node.name}: {count}")
    assert not long, lines(*long)


def test_every_module_says_what_it_is() -> None:
    places = [*MODULES.values(), *modules("bench"), *modules("tests/kit")]
    silent = [m.place for m in places if m.text and not ast.get_docstring(m.tree)]
    assert not silent, lines(*silent)


def test_public_functions_and_classes_say_what_they_mean() -> None:
    definitions = [
        (f"{module.place}:{node.lineno} {node.name}", ast.get_docstring(node) is not None)
        for module in MODULES.values()
        for node in module.public_definitions()
    ]
    silent = [place for place, said in definitions if not said]
    assert len(silent) <= 0.1 * len(definitions), lines(*silent)


def test_a_docstring_begins_with_what_the_thing_is_or_does() -> None:
    wrong = [
        f"{module.place}:{node.lineno} {node.name}"
        for module in MODULES.values()
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (ast.get_docstring(node) or "").startswith(("Raises:", "Source:", "Returns:"))
    ]
    assert not wrong, lines(*wrong)


def test_functions_are_short() -> None:
    found = [(m, node, length(node)) for m in MODULES.values() for node in m.functions]
    long = [f"{m.place}:{node.lineno} {node.name}: {size}" for m, node, size in found if size > 70]
    assert not long, lines(*long)
    assert median(size for _, _, size in found) <= 7


PUBLIC = {
    *sdk.MODULES,
    "aerobee.testing.plugin",
    "aerobee.spark",
    "aerobee.spark.jobs.sending",
    "aerobee.spark.stream_lag",
    "aerobee.spark.trace",
    "aerobee.spark.autoregister.pyspark_aerobee",
    "aerobee.spark.autoregister.pyspark_aerobee_lag",
    "aerobee.spark.autoregister.pyspark_aerobee_store",
}
"""The modules from which users import: those of docs/sdk and docs/spark, and those Spark loads."""


def test_public_modules_alone_declare_their_names() -> None:
    wrong = [
        f"{name} {'declares no names' if name in PUBLIC else 'is not public'}"
        for name, module in {module.name: module for module in EVERYWHERE}.items()
        if (name in PUBLIC) != bool(declared(module))
    ]
    wrong += [
        f"{name}: {missing}"
        for name in PUBLIC
        for missing in declared(MODULES[name]) - defined(MODULES[name])
    ]
    assert not wrong, lines(*wrong)


def declared(module: Module) -> set[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            return {str(name) for name in names}
    return set()


def defined(module: Module) -> set[str]:
    """Every name bound at the top of a module."""
    names: set[str] = set()
    for node in module.nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.alias():
                names.add(node.asname or node.name.partition(".")[0])
    return names


SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore)(?P<rest>.*)", re.IGNORECASE)
WITH_CODE_AND_REASON = re.compile(
    r"(:\s*[A-Z]+[0-9]+(\s*,\s*[A-Z]+[0-9]+)*|\[[a-z0-9, -]+\])\W+\w.*"
)


def test_each_suppressed_warning_has_its_code_and_its_reason() -> None:
    wrong = []
    for module in EVERYWHERE:
        for line, comment in module.comments if SUPPRESSION.search(module.text) else ():
            found = SUPPRESSION.search(comment)
            if found and not WITH_CODE_AND_REASON.fullmatch(found["rest"].strip()):
                wrong.append(f"{module.place}:{line} {comment}")
    assert not wrong, lines(*wrong)


NAMES = "store.format.system_names"
"""The module of the names of system topics and groups."""


def literals(module: Module) -> Iterator[tuple[int, str]]:
    """Line and text of each literal that is no docstring."""
    said = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def test_names_of_system_topics_and_groups_are_written_once() -> None:
    system = tuple(text for _, text in literals(MODULES[NAMES]))
    assert {"RMQ_SYS_TRACE_TOPIC", "%RETRY%", "TBW102", "CID_RMQ_SYS_TRANS"} <= {*system}
    wrong = [
        f"{module.place}:{line} {text}"
        for name, module in MODULES.items()
        if name != NAMES
        for line, text in literals(module)
        if text.startswith(system) or text == "_REPLY_TOPIC"
    ]
    assert not wrong, lines(*wrong)


def test_nothing_prints_but_the_command_line() -> None:
    wrong = [
        f"{module.place}:{node.lineno}"
        for module in MODULES.values()
        if not below(module.name, ("aerobee.cli",)) and module.path.name != "__main__.py"
        for called, node in module.calls
        if called == "print"
    ]
    assert not wrong, lines(*wrong)


OWN_TEXTS = ("main.py", "completion.py")
"""They print the version and the script of a shell, which nobody else has written."""


def test_one_door_of_the_command_line_prints_what_others_have_written() -> None:
    """A client id, a remark or a topic of a store may hold what a terminal obeys."""
    wrong = [
        f"{module.place}:{node.lineno} {called}"
        for module in MODULES.values()
        if below(module.name, ("aerobee.cli",))
        and module.path.name not in ("output.py", *OWN_TEXTS)
        for called, node in module.calls
        if called in ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write")
    ]
    assert not wrong, lines(*wrong)


def test_tests_do_not_sleep_on_the_clock_of_the_wall() -> None:
    wrong = [
        f"{module.place}:{node.lineno}"
        for module in modules("tests")
        for called, node in module.calls
        if called == "time.sleep"
    ]
    assert not wrong, lines(*wrong)


def test_every_test_module_stands_where_its_module_stands() -> None:
    stray = []
    for path in (found for top in MAY_IMPORT for found in python_files(f"tests/{top}")):
        if path.name.startswith("test_"):
            module = ROOT / path.relative_to(ROOT / "tests").with_name(path.name[5:])
            if not module.is_file() and not module.with_suffix("").is_dir():
                stray.append(str(path.relative_to(ROOT)))
    assert not stray, lines(*stray)


DIALECT = re.compile(r"\b(rehears\w*|carry_out|carried_out|strangers?)\b|\bLaw:", re.IGNORECASE)
"""Words that were ours alone: the field has better ones."""
SERVER_DIALECT = re.compile(
    r"\b(whom?ever|hears of|gets on|under way|let(s|ting)? go of|(lies|stands) there|at the door"
    r"|have a say|(hands|words) of the)\b|^\s*(\"\"\"|# )Who ",
    re.IGNORECASE,
)
"""Of the servers: relative clauses without a subject, and metaphors."""
CLIENT_DIALECT = re.compile(
    r"\b(whom?ever|hears? of|takes? leave|came of|let(s|ting)? go of|hand(s|ed) out|lies there"
    r"|has not heard)\b|^\s*(\"\"\"|# )Who ",
    re.IGNORECASE,
)
"""Of the SDK, the command line, the test kit for applications and Spark: the same."""


def dialects(module: Module) -> tuple[re.Pattern[str], ...]:
    return DIALECT, CLIENT_DIALECT if module.top == "aerobee" else SERVER_DIALECT


def test_the_product_speaks_the_language_of_its_field() -> None:
    found = [
        f"{module.place}:{number} {word.group()}"
        for module in MODULES.values()
        for number, line in enumerate(module.text.splitlines(), 1)
        for pattern in dialects(module)
        for word in pattern.finditer(line)
    ]
    assert not found, lines(*found)


RULER = re.compile(r"#\s*(--|==|~~|##|─{3})")


def test_rulers_between_sections_are_of_one_style() -> None:
    wrong = [
        f"{module.place}:{line} {comment}"
        for module in EVERYWHERE
        if RULER.search(module.text)
        for line, comment in module.comments
        if RULER.match(comment)
    ]
    assert not wrong, lines(*wrong)


def test_loggers_are_named_by_their_modules() -> None:
    """Those of the SDK are `aerobee.client`, for applications to configure."""
    wrong = [
        f"{module.place}:{node.lineno} {ast.unparse(node)}"
        for module in MODULES.values()
        for called, node in (module.calls if module.top != "aerobee" else ())
        if called.endswith(("get_logger", "getLogger"))
        and [ast.unparse(given) for given in node.args] not in (["__name__"], [])
    ]
    assert not wrong, lines(*wrong)


# Spelled so that this file does not hold them.
PRIVATE = ["/".join(("", "work", "")), "/".join(("shared", "spec")), "style" + ".md"]
PRIVATE += [f"{name}.md §" for name in ("remoting", "store", "semantics", "config", "reliability")]
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".conf", ".java", ".xml", ".sh", ".txt", ""}


def tracked_files() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return done.stdout.splitlines()


def test_nothing_refers_to_papers_that_are_not_here() -> None:
    wrong = []
    for name in tracked_files():
        path = ROOT / name
        if path.suffix in TEXT and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            wrong += [f"{name} holds {word}" for word in PRIVATE if word in text]
    assert not wrong, lines(*wrong)


PAGES = {
    "remoting": "remoting",
    "store format": "store",
    "semantics": "semantics",
    "nameserver": "nameserver",
    "client": "client",
    "configuration": "configuration",
    "admin": "admin",
    "grpc": "grpc",
}
"""A page of docs/reference as `Source:` lines call it → its file."""
SECTION = r"§\s?(\d+(?:\.\d+)*)"
CITED = re.compile(rf"\b({'|'.join(PAGES)})\s+({SECTION}(?:(?:,|\s+and)\s+{SECTION})*)")


def headings(page: str) -> set[str]:
    """The numbers of the sections of a page of the reference."""
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    return set(re.findall(r"^#+ (\d+(?:\.\d+)*)", text, re.MULTILINE))


def test_every_section_that_the_code_cites_stands_in_the_reference() -> None:
    sections = {name: headings(page) for name, page in PAGES.items()}
    wrong, cited = [], 0
    for module in EVERYWHERE:
        for name, numbers, *_ in CITED.findall(module.text):
            for number in re.findall(SECTION, numbers):
                cited += 1
                if number not in sections[name]:
                    wrong.append(f"{module.place} cites {name} §{number}")
    assert cited > 100, "the pattern finds no citations any more"
    assert not wrong, lines(*wrong)


EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
EVENT_ROW = re.compile(r"^\| `([a-z_]+\.[a-z_]+)` \| (debug|info|warning|error)", re.MULTILINE)
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def logged() -> Iterator[tuple[str, str, str]]:
    """Place, level and event of every log call; the event is "" when it is no literal."""
    for module in MODULES.values():
        if module.top == "aerobee" and module.name not in SHARED:
            continue
        for node in module.nodes:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and ast.unparse(node.func.value).rpartition(".")[2] in {"log", "_log", "logger"}
            ):
                first = node.args[0] if node.args else None
                # `"a.b" if x else "c.d"` is two literals.
                texts = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
                for text in texts:
                    event = text.value if isinstance(text, ast.Constant) else ""
                    yield f"{module.place}:{node.lineno}", node.func.attr, str(event)


def test_every_event_has_a_literal_name_and_stands_in_the_list() -> None:
    listed = EVENT_ROW.findall((ROOT / "docs/events.md").read_text(encoding="utf-8"))
    rows = dict(listed)
    assert [event for event, _ in listed] == sorted(rows), "sorted, and each event once"
    found = list(logged())
    nameless = [place for place, _, event in found if not EVENT.fullmatch(event)]
    assert not nameless, lines(*nameless)
    missing = [f"{place} {level} {event}" for place, level, event in found if event not in rows]
    assert not missing, lines(*missing)
    assert not set(rows) - {event for _, _, event in found}, "listed, but logged nowhere"


def test_the_printed_pages_are_what_the_source_says() -> None:
    assert stale() == [], "run: python -m tests.pages --write"


LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [(page, link) for page in pages for link in LINK.findall(page.read_text("utf-8"))]
    assert len(found) > 30, "the pattern finds no links any more"
    wrong = [f"{page}: {link}" for page, link in found if not (page.parent / link).exists()]
    assert not wrong, lines(*wrong)


def test_the_changelog_says_each_thing_once_and_names_pages_that_exist() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    openings = [" ".join(entry.split()[:6]) for entry in text.split("\n- ")[1:]]
    assert len(openings) > 20, "entries no longer begin with a dash"
    doubled = {opening for opening in openings if openings.count(opening) > 1}
    assert not doubled, lines("said twice, as after a merge:", *doubled)
    pages = set(re.findall(r"`(docs/[\w/.-]+\.md)`", text))
    assert [page for page in pages if not (ROOT / page).exists()] == []


CHANGELOG_WORDS = 700


def test_the_changelog_of_one_version_is_read_in_three_minutes() -> None:
    """Details stand in the pages: docs/differences.md, docs/operations/upgrade.md, the guides."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    long = {version.splitlines()[0]: len(version.split()) for version in versions}
    assert not {name: words for name, words in long.items() if words > CHANGELOG_WORDS}
