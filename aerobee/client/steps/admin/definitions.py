"""The definitions of a cluster: topics and groups with all their settings, in RocketMQ's words.

Source: admin §4.1, §4.2 (TopicConfig, SubscriptionGroupConfig).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.client.message import GROUP_MAX, TOPIC_MAX, check_name
from aerobee.client.steps.admin.brokers import ask, masters
from aerobee.client.steps.admin.groups import SLOW_WITHIN_S, configs_at
from aerobee.client.steps.admin.topics import (
    check_perm,
    check_queues,
    described,
    put_config,
    system_topics,
)
from aerobee.client.system_names import is_system_group, is_system_topic
from aerobee.errors import ConfigurationError
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from aerobee.remoting.wire.headers.group import CreateGroup
from aerobee.remoting.wire.headers.topic import GetAllTopicConfig
from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

TOPIC_SETTINGS = ("readQueueNums", "writeQueueNums", "perm", "order", "attributes")
MADE_BY_BROKERS = (RETRY_PREFIX, DLQ_PREFIX)


def topic_definitions(routes: Routes) -> Steps[dict[str, dict[str, dict[str, Any]]]]:
    """Topic → broker → settings, of all topics that people make: no system topic, none for retries
    or dead letters.

    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    own = set((yield from system_topics(routes)))
    by_topic: dict[str, dict[str, dict[str, Any]]] = {}
    for target in (yield from masters(routes)):
        answered = yield from ask(routes, target, GetAllTopicConfig(), within_s=SLOW_WITHIN_S)
        table = answered.body(TopicConfigSerializeWrapper).topic_config_table
        for name, config in sorted(table.items()):
            if name in own or is_system_topic(name) or name.startswith(MADE_BY_BROKERS):
                continue
            settings = msgspec.to_builtins(config)
            by_topic.setdefault(name, {})[target.name] = {
                key: settings[key] for key in TOPIC_SETTINGS
            }
    return dict(sorted(by_topic.items()))


def group_definitions(routes: Routes) -> Steps[dict[str, dict[str, dict[str, Any]]]]:
    """Group → broker → settings, of all groups but those of brokers and tools.

    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    by_group: dict[str, dict[str, dict[str, Any]]] = {}
    for target in (yield from masters(routes)):
        for name, config in sorted((yield from configs_at(routes, target)).items()):
            if not is_system_group(name):
                settings = msgspec.to_builtins(config)
                del settings["groupName"]
                by_group.setdefault(name, {})[target.name] = settings
    return dict(sorted(by_group.items()))


def define_topic(
    routes: Routes, name: str, broker: str, settings: Mapping[str, Any]
) -> Steps[None]:
    """Make a topic on one broker, or change it: `settings` as `topic_definitions` has them.

    Attributes that are not named stay. Raises: ConfigurationError naming the setting, BrokerError,
    BrokerNotFoundError, TransportError.
    """
    wanted = described(broker, topic_config(name, settings))
    for target in (yield from masters(routes, broker=broker)):
        yield from put_config(routes, target, name, wanted)


def define_group(
    routes: Routes, name: str, broker: str, settings: Mapping[str, Any]
) -> Steps[None]:
    """Make a group on one broker, or change it: `settings` as `group_definitions` has them.

    Attributes that are not named stay. Raises: as `define_topic`.
    """
    config = group_config(name, settings)
    # A broker takes them as edits.
    edits = {f"+{key}": value for key, value in config.attributes.items()}
    config = msgspec.structs.replace(config, attributes=edits)
    for target in (yield from masters(routes, broker=broker)):
        yield from ask(routes, target, CreateGroup(), body=config.to_bytes())


def topic_config(name: str, settings: Mapping[str, Any]) -> TopicConfig:
    """The configuration that settings of a topic are. Raises: ConfigurationError."""
    check_name("topic", name, TOPIC_MAX)
    check_known(f"topic {name}", settings, TOPIC_SETTINGS)
    config: TopicConfig = converted(f"topic {name}", dict(settings), TopicConfig)
    check_queues(config.read_queue_nums)
    check_queues(config.write_queue_nums)
    check_perm(config.perm)
    return config


def group_config(name: str, settings: Mapping[str, Any]) -> SubscriptionGroupConfig:
    """The configuration that settings of a group are. Raises: ConfigurationError."""
    check_name("group", name, GROUP_MAX)
    known = [field.encode_name for field in msgspec.structs.fields(SubscriptionGroupConfig)]
    check_known(f"group {name}", settings, [key for key in known if key != "groupName"])
    wanted = {**settings, "groupName": name}
    config: SubscriptionGroupConfig = converted(f"group {name}", wanted, SubscriptionGroupConfig)
    return config


def check_known(what: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse settings that do not exist. Raises: ConfigurationError."""
    for name in settings:
        if name not in known:
            raise ConfigurationError(f"{what}: there is no setting {name!r}: {', '.join(known)}")


def converted(what: str, settings: dict[str, Any], kind: type[Any]) -> Any:
    """Settings with their types. Raises: ConfigurationError naming the one that is wrong."""
    try:
        return msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{what}: {error}") from None
