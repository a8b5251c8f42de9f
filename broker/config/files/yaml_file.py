"""Reads a YAML file into entries with line numbers. No Python values are constructed, so every
scalar keeps its text from the file: YAML would turn `04` into 4 and `0123` into 83.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from aerobee.broker.config.files.entries import ConfigurationError, Entry, Form, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.files.entries import Tree

FILE_SECTIONS = ("broker", "store", "remoting", "tls", "namesrv", "auth")
MAX_DEPTH = 4


def read_yaml(content: bytes, file: str) -> list[Entry]:
    """The entries in the order of the file. Raises: ConfigurationError with file and line."""
    root = root_of(content, file)
    return [] if root is None else list(entries(root, file))


def root_of(content: bytes, file: str) -> yaml.MappingNode | None:
    """The `key: value` lines of a file, None without any.

    Raises: ConfigurationError with file and line.
    """
    try:
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{file}: not UTF-8 at byte {error.start}"]) from error
    # PyYAML lets the errors of chr() and int() out: "\\UFFFFFFFF", or a version of 5,000 digits.
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise ConfigurationError([f"{syntax_place(error, file)}: {syntax_text(error)}"]) from error
    if root is None or is_null(root):
        return None
    if not isinstance(root, yaml.MappingNode):
        raise ConfigurationError([f"{location(root, file)}: settings are `key: value` lines"])
    return root


def entries(root: yaml.MappingNode, file: str) -> Iterator[Entry]:
    """All entries of the file, those inside a section with its name."""
    for name, value in root.value:
        if name.value not in FILE_SECTIONS:
            yield entry(name, value, file, "")
        elif isinstance(value, yaml.MappingNode):
            for inner_name, inner_value in value.value:
                yield entry(inner_name, inner_value, file, name.value)
        elif not is_null(value):
            text = f"{location(name, file)}: {name.value}: a section holds `key: value` lines"
            raise ConfigurationError([text])


def entry(name: yaml.Node, value: yaml.Node, file: str, section: str) -> Entry:
    """One entry; its location is that of its name."""
    if not isinstance(name, yaml.ScalarNode):
        raise ConfigurationError([f"{location(name, file)}: a key is a plain word"])
    return Entry(name.value, tree(value, file), location(name, file), Form.YAML, section)


def tree(node: yaml.Node, file: str, depth: int = 0) -> Tree:
    """The node as plain values; keys of an inner mapping are strings."""
    if depth > MAX_DEPTH:
        raise ConfigurationError([f"{location(node, file)}: nested too deep"])
    if isinstance(node, yaml.SequenceNode):
        return [tree(item, file, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {str(name.value): tree(item, file, depth + 1) for name, item in node.value}
    return Scalar(node.value, node.tag.rpartition(":")[2])


def is_null(node: yaml.Node) -> bool:
    """Whether the node is YAML's null."""
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def location(node: yaml.Node, file: str) -> str:
    """The file and line where a node begins, counted from line 1."""
    return f"{file}:{node.start_mark.line + 1}"


def syntax_place(error: Exception, file: str) -> str:
    """The location of a syntax error, if the parser gives one."""
    mark = getattr(error, "problem_mark", None)
    return f"{file}:{mark.line + 1}" if mark is not None else file


def syntax_text(error: Exception) -> str:
    """The parser's message about a syntax error, on one line."""
    text = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if "'\\t'" in str(text):
        return "not YAML: a tab; YAML indents and separates with spaces"
    return "not YAML: " + " ".join(str(text).split())
