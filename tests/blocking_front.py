"""The blocking front of the SDK, generated from the async one where both have the same shape.

    python -m tests.blocking_front [--write]

Tells which modules are stale, with exit code 1, or writes them. A module of `aerobee/client/aio`
becomes the one of that name in `aerobee/client/blocking`:

    await x, async def, async with      → x, def, with
    __aenter__, aclose, AsyncIterator   → __enter__, close, Iterator
    a public method without `async`     → within the client's lock, if it uses the state of steps:
                                          on an event loop nothing comes between, on threads it does
    sentences of one front              → those of the other (`WORDS`)

Clients, lives, workers and what waits differ really, and are written by hand in both folders.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "aerobee" / "client"
GENERATED = (
    "admin",
    "pop_consumer",
    "producer",
    "pull_consumer",
    "push_consumer",
    "transaction_producer",
)
"""The modules with the same shape on both fronts."""

NAMES = {
    r"async (def|with|for)\b": r"\1",
    r"await ": "",
    r"  # noqa: ASYNC109 \(.*\)": "",
    r"aerobee\.client\.aio\b": "aerobee.client.blocking",
    r"\b__a(enter|exit|iter|next)__\b": r"__\1__",
    r"\baclose\b": "close",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\bAsyncIterator\b": "Iterator",
    r"\basynccontextmanager\b": "contextmanager",
    r"\bCoroutine\[Any, Any, (\w+)\]": r"\1",
    r"\b(Checker|Executor|Handler)\b": r"Blocking\1",
    r", awaited=True\b": "",
}
"""Pattern → replacement, in code and in docstrings."""

WORDS = {
    "The async ": "The blocking ",
    "Iterate from one task\n    only.": "Iterate from one thread\n    only.",
    "Tasks may\n    share a consumer.": "Threads may\n    share a consumer.",
    """It may be a coroutine function;
    a plain function runs in a thread, one call at a time.""": """It is called in a thread of its
    own, one call at a time.""",
    "after a cancellation the broker asks later. Raises: TransactionError and as\n"
    "        `send` before": "after Ctrl-C the broker asks later. Raises: TransactionError and as "
    "`send`\n        before",
    """A closed consumer returns none. Messages that arrive for a cancelled call go to the next one
        for the same, or are given back. `expression` is `*`, tags as `A || B`, or a Filter. Raises:
""": """A closed consumer returns none. `expression` is `*`, tags as `A || B`, or a Filter. Raises:
""",
    """Await the returned object
        for the result; failures that are not awaited are raised by `flush` and `close`. Messages
        to one queue by their ordering key, or by `queue`, keep their order. Raises:
""": """The returned object has
        the result; failures whose result is not asked for are raised by `flush` and `close`.
        Messages to one queue by their ordering key, or by `queue`, keep their order. Raises:
""",
    "messages that were not awaited.": "messages whose result was not asked for.",
    """
        @consumer.subscribe("orders")
        def on_orders(messages): ...

        consumer.run()

    It starts in `with`, or in `run`. When a handler returns, its messages are finished; when
    it raises, they are delivered again later, see RetryLater, Reject and BatchFailed. Plain
    functions run in threads. The options are those of PushOptions.
""": """        consumer.subscribe("orders", handler=on_orders)
        consumer.run()

    Handlers run in `concurrency` threads. When a handler returns, its messages are finished; when
    it raises, they are delivered again later, see RetryLater, Reject and BatchFailed. A handler
    that exceeds `handler_timeout` cannot be stopped: its messages are delivered again, and its
    thread stays occupied. The options are those of PushOptions.
""",
}
"""What is said of the async front → what is said of the blocking one."""

ORIGIN = """

Generated from `aio/{name}.py`: change that one, and then run
`python -m tests.blocking_front --write`.
\"\"\"
"""
LOCK = "with self._client.lock:"
STATE = {"_member", "_popper", "_outbox"}
"""The attributes that hold the state of steps."""


def generated() -> dict[str, str]:
    """Module → text of the blocking front. Raises: ValueError for words that nobody says."""
    texts = {name: plain_code(name) for name in GENERATED}
    unsaid = [words for words in WORDS if not any(words in text for text in texts.values())]
    if unsaid:
        raise ValueError(f"WORDS that are in no module of aio: {unsaid}")
    return {name: blocking_of(name, text) for name, text in texts.items()}


def plain_code(name: str) -> str:
    """The text of an async module with locks, and without what waits."""
    text = locked((CLIENT / "aio" / f"{name}.py").read_text(encoding="utf-8"))
    for pattern, replacement in NAMES.items():
        text = re.sub(pattern, replacement, text)
    return text


def blocking_of(name: str, text: str) -> str:
    """The text of a blocking module, with its own words, as ruff formats it."""
    for words, others in WORDS.items():
        text = text.replace(words, others)
    text = text.replace('"""\n', ORIGIN.format(name=name), 1)
    text = ruff(name, text, "check", "--fix", "--quiet", "--select", "I,F401")
    return ruff(name, text, "format")


def locked(text: str) -> str:
    """The text with the client's lock around the bodies that need it."""
    lines = text.split("\n")
    for method in plain_methods(ast.parse(text)):
        first = method.body[1 if ast.get_docstring(method) else 0]
        rest = range(first.lineno - 1, (method.end_lineno or 0))
        lines[rest[0]] = " " * first.col_offset + LOCK + "\n    " + lines[rest[0]]
        for at in rest[1:]:
            lines[at] = f"    {lines[at]}" if lines[at] else ""
    return "\n".join(lines)


def plain_methods(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Public methods without `async` that use the state of steps."""
    for cls in tree.body:
        for node in cls.body if isinstance(cls, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                used = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
                if used & STATE:
                    yield node


def ruff(name: str, text: str, *command: str) -> str:
    """The text as ruff fixes or formats it."""
    path = CLIENT / "blocking" / f"{name}.py"
    run = [str(Path(sys.executable).with_name("ruff")), *command, "--stdin-filename", str(path)]
    done = subprocess.run(
        [*run, "-"], input=text, capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout


def stale(*, write: bool = False) -> list[str]:
    """The generated modules that differ from what is generated now."""
    found = []
    for name, text in generated().items():
        path = CLIENT / "blocking" / f"{name}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found.append(str(path.relative_to(ROOT)))
            if write:
                path.write_text(text, encoding="utf-8")
    return found


def main() -> int:
    """The command: 0 when nothing is stale, or all was written."""
    write = sys.argv[1:] == ["--write"]
    found = stale(write=write)
    for path in found:
        print(f"{'written' if write else 'stale'}: {path}")
    return 1 if found and not write else 0


if __name__ == "__main__":
    sys.exit(main())
