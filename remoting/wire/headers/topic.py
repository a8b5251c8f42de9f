"""Administration of topics. Source: admin §4.1 (UpdateTopicSubCommand)."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, Header


class CreateTopic(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17). `attributes` is a list of edits: "+key=value,-key"."""

    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 | None = None
    order: bool
    attributes: str | None = None
    force: bool | None = None


class GetAllTopicConfig(Header):
    """GET_ALL_TOPIC_CONFIG (21): one page, from 5.3.4 on; older clients ask for none and get
    all.
    """

    code = RequestCode.GET_ALL_TOPIC_CONFIG
    topic_seq: I32 | None = None
    data_version: str | None = None
    max_topic_num: I32 | None = None


class GetAllTopicConfigResponse(Header):
    """How many topics there are on all pages."""

    total_topic_num: I32


class GetTopicConfig(Header):
    """GET_TOPIC_CONFIG (351)."""

    code = RequestCode.GET_TOPIC_CONFIG
    topic: str


class DeleteTopicInBroker(Header):
    """DELETE_TOPIC_IN_BROKER (215)."""

    code = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str


class CreateTopics(Header):
    """UPDATE_AND_CREATE_TOPIC_LIST (18); the topics are the body."""

    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST


class GetSystemTopicsOfBroker(Header):
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""

    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
