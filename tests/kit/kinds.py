"""What kind of code each file of the servers is: the rule of imports goes by it.

Pure code maps bytes to values and state to decisions; time and randomness come in as arguments. I/O
code decides nothing. Services run in the background, or wait. Handlers answer requests. Assembly
puts the others together. A file may import its own kind and those before it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kit.source_tree import Module


class Kind(IntEnum):
    """In the order in which they may be imported."""

    PURE = 0
    IO = 1
    SERVICES = 2
    HANDLERS = 3
    ASSEMBLY = 4


BROKER: Final[Mapping[Kind, Mapping[str, tuple[str, ...]]]] = {
    Kind.IO: {
        "console": ("inside",),
        "console.pages": ("rendering",),
        "failover.deciders": ("etcd_http",),
        "http": ("app", "listener"),
        "metrics": ("metrics",),
        "pools": (
            "pools",
            "slow_rounds",
        ),
        "process": (
            "cycles",
            "host",
            "log",
            "log_stream",
            "service_manager",
            "signals",
            "stall_watch",
        ),
        "live_settings": ("overlay_file",),
        "replication": ("saved_role",),
        "saved": ("json_file",),
        "supervisor": (
            "asking",
            "http_app",
            "layout",
        ),
        "topics": ("topics_file",),
    },
    Kind.SERVICES: {
        "console": ("commands", "openapi"),
        "console.looks": ("cluster", "looking", "own"),
        "consumers": ("member_changes",),
        "core": (
            "background",
            "puts",
            "role",
        ),
        "dedupe": ("dedupe",),
        "delay": ("schedule",),
        "failover": ("known_record", "leadership", "member", "reign"),
        "failover.deciders": ("controller", "controller_identity", "controller_links", "etcd"),
        "grpc": ("asked_clients", "door"),
        "life": ("server",),
        "live_settings": ("live_settings",),
        "metrics": ("lag_history", "sampling"),
        "namesrv": (
            "min_id_notices",
            "name_server_link",
            "registration",
        ),
        "pools": ("pool_watch",),
        "pop": (
            "pop_hold",
            "revive",
            "revive_log",
        ),
        "process": ("listener_tls", "loop_ticker"),
        "replication": (
            "empty_master",
            "following",
            "master_calls",
            "master_tables",
            "other_masters",
            "slaves",
        ),
        "pull": (
            "hold",
            "protection",
            "unread",
        ),
        "saved": (
            "save",
            "tables",
        ),
        "supervisor": ("members",),
        "timers": (
            "timer_delivery",
            "timer_enqueue",
            "timers",
        ),
        "transactions": ("check_service",),
        "users": ("acl_files", "shared_users"),
    },
    Kind.HANDLERS: {
        "access": (
            "audit",
            "gate",
        ),
        "admin": (
            "cleanup",
            "client_calls",
            "connected_clients",
            "consumption",
            "figures",
            "topic_deletion",
            "runtime_info",
        ),
        "assignment": ("assignment_processor",),
        "console": ("console", "web"),
        "console.pages": (
            "changes",
            "frame",
            "letters",
            "live",
            "people",
            "questions",
            "roles",
            "routes",
            "views",
        ),
        "consumers": (
            "client_processor",
            "group_processor",
            "offset_processor",
            "reset",
        ),
        "core": ("lists",),
        "failover": ("commands",),
        "grpc": (
            "caller",
            "clients",
            "fates",
            "producing",
            "pulling",
            "receiving",
            "rpc",
            "service",
        ),
        "live_settings": ("settings_processor",),
        "namesrv": ("route_processor",),
        "pop": (
            "ack",
            "notification",
            "pop",
            "pop_reader",
            "pop_wait",
        ),
        "pull": (
            "access",
            "pull",
        ),
        "query": ("key_queries", "query"),
        "replication": ("another_master", "handover", "promotion", "slave_guard", "status"),
        "send": (
            "answers",
            "batches",
            "dead_letters",
            "destinations",
            "reply",
            "send",
            "send_back",
            "special_sends",
        ),
        "timers": ("recall",),
        "topics": ("topic_processor",),
        "transactions": ("end_transaction",),
        "users": ("user_processor",),
    },
    Kind.ASSEMBLY: {
        "": (
            "__main__",
            "broker",
            "controller",
            "numbered",
            "start_checks",
        ),
        "core": (
            "core",
            "rounds",
        ),
        "console": ("alone", "assembly"),
        "grpc": ("assembly",),
        "life": ("life",),
        "metrics": ("sources",),
        "namesrv": ("controller", "role"),
        "supervisor": ("supervisor",),
        "users": ("directory",),
    },
}
"""Files of the broker that are not pure, by folder."""

STORE: Final[Mapping[Kind, Mapping[str, tuple[str, ...]]]] = {
    Kind.IO: {
        "": ("set_aside",),
        "files": (
            "descriptors",
            "disk",
            "local_time",
            "lock_file",
            "machine",
            "mapped_file",
            "mapped_file_queue",
            "open_files",
            "places",
            "sync_thread",
            "syncs",
            "system_clock",
        ),
        "flush": (
            "checkpoint_file",
            "recovery_point",
        ),
        "index": (
            "index_file",
            "index_shape",
            "index_walk",
            "indexes",
            "key_search",
        ),
        "log": (
            "commit_log",
            "segment_head",
        ),
        "messages": (
            "checked_reads",
            "cold_reads",
        ),
        "queues": (
            "consume_queue",
            "consume_queues",
            "queue_extents",
            "queue_files",
            "queue_units",
            "unit_search",
        ),
        "recovery": (
            "abort_file",
            "last_stop",
        ),
        "replication": ("saved_epochs",),
        "space": (
            "archive_marks",
            "reserve_file",
        ),
        "timers": (
            "timer_check",
            "timer_log",
            "timer_store",
            "timer_wheel",
        ),
        "tools": ("locations",),
    },
    Kind.SERVICES: {
        "flush": (
            "checkpoint",
            "extents",
            "log_flush",
            "queue_flush",
            "recovery_points",
        ),
        "index": ("index_service",),
        "log": (
            "allocate",
            "read_through",
            "unmap",
            "warm",
        ),
        "queues": ("dispatch",),
        "recovery": (
            "cut",
            "damage",
            "recovery",
            "recovery_start",
            "start_check",
        ),
        "replication": (
            "log_in",
            "log_out",
            "membership",
            "replica_waits",
        ),
        "space": (
            "cleanup",
            "cleanup_queues",
            "watermark",
        ),
    },
    Kind.HANDLERS: {
        "": ("selection",),
        "index": ("key_index",),
        "messages": (
            "reader",
            "writer",
        ),
        "tools": (
            "directory",
            "dump",
            "export",
            "fields",
            "findings",
            "index",
            "passage",
            "repair",
            "stats",
            "units",
            "verify",
        ),
    },
    Kind.ASSEMBLY: {
        "": ("message_store",),
        "space": ("store_space",),
    },
}
"""Files of the store that are not pure, by folder."""
BROKER_FOLDERS: Final = (
    "counters",
    "config",
    "saved",
    "process",
    "pools",
    "filters",
    "holds",
    "core",
    "topics",
    "consumers",
    "delay",
    "timers",
    "transactions",
    "dedupe",
    "send",
    "pull",
    "pop",
    "query",
    "access",
    "replication",
    "failover",
    "users",
    "live_settings",
    "metrics",
    "http",
    "life",
    "namesrv",
    "assignment",
    "admin",
    "grpc",
    "console",
    "supervisor",
)
STORE_FOLDERS: Final = (
    "format",
    "files",
    "log",
    "queues",
    "flush",
    "messages",
    "replication",
    "index",
    "timers",
    "space",
    "recovery",
    "tools",
)
FOLDERS_IN_ORDER: Final = {"broker": BROKER_FOLDERS, "store": STORE_FOLDERS}
"""Each folder imports only itself and those before it, for type checkers and in functions too."""

TABLES: Final = {"broker": BROKER, "store": STORE}
FOLDERS: Final = {
    "remoting.wire": Kind.PURE,
    "remoting.http2": Kind.PURE,
    "remoting.grpc": Kind.PURE,
    "remoting.server": Kind.IO,
    "remoting.client": Kind.IO,
}
"""Remoting has one kind for each folder."""
WORDS_AMONG_HANDS: Final = frozenset(
    f"remoting.server.{name}"
    for name in (
        "addresses",
        "arrivals",
        "log_limit",
        "long_requests",
        "peer",
        "pools",
        "route_table",
        "routes",
        "states",
    )
)
"""Files that are purer than their folder."""
AT_THE_ROOT: Final = {
    "border": Kind.PURE,
    "config": Kind.PURE,
    "errors": Kind.PURE,
    "latency": Kind.PURE,
    "rate_limit": Kind.PURE,
    "stats": Kind.PURE,
    "tls_config": Kind.PURE,
}
"""Modules at the root of remoting that are no roots, so that its other files may import them."""

_BY_NAME = {
    ".".join(part for part in (package, folder, name) if part): kind
    for package, table in TABLES.items()
    for kind, folders in table.items()
    for folder, names in folders.items()
    for name in names
}


def kind_of(module: Module) -> Kind | None:
    """The kind of a file; None for those that no rule is about."""
    if module.path.name == "__init__.py" or module.top == "aerobee":
        return None
    if module.top in TABLES:
        if module.path.name == "feature.py":
            return Kind.ASSEMBLY
        return _BY_NAME.get(module.name, Kind.PURE)
    if module.name in WORDS_AMONG_HANDS:
        return Kind.PURE
    folder, _, name = module.name.rpartition(".")
    for prefix, kind in FOLDERS.items():
        if folder == prefix or folder.startswith(f"{prefix}."):
            return kind
    return AT_THE_ROOT.get(name, Kind.ASSEMBLY)
