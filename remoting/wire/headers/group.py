"""Administration of consumer groups. Source: admin §4.1."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, Header


class CreateGroup(Header):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200); the group is the body."""

    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class GetAllGroupConfig(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): one page, from 5.3.4 on; older clients get all."""

    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    group_seq: I32 | None = None
    data_version: str | None = None
    max_group_num: I32 | None = None


class GetAllGroupConfigResponse(Header):
    """How many groups there are on all pages."""

    total_group_num: I32


class DeleteGroup(Header):
    """DELETE_SUBSCRIPTIONGROUP (207). 4.9 calls the last field `removeOffset`."""

    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


class GetGroupConfig(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str


class CreateGroups(Header):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225); the groups are the body."""

    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


class UpdateGroupForbidden(Header):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353): forbid a group to read a topic; a query without
    `readable`.
    """

    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    group: str
    topic: str
    readable: bool | None = None
