"""Administration of users and ACLs (RocketMQ 5.3). Source: admin §4.6 (CreateUserRequestHeader)."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import Header


class CreateUser(Header):
    """AUTH_CREATE_USER (3001); the body is a UserInfo."""

    code = RequestCode.AUTH_CREATE_USER
    username: str | None = None


class UpdateUser(Header):
    """AUTH_UPDATE_USER (3002); the body is a UserInfo, whose absent members stay as they are."""

    code = RequestCode.AUTH_UPDATE_USER
    username: str | None = None


class DeleteUser(Header):
    """AUTH_DELETE_USER (3003)."""

    code = RequestCode.AUTH_DELETE_USER
    username: str | None = None


class GetUser(Header):
    """AUTH_GET_USER (3004)."""

    code = RequestCode.AUTH_GET_USER
    username: str | None = None


class ListUser(Header):
    """AUTH_LIST_USER (3005): users whose name contains `filter`."""

    code = RequestCode.AUTH_LIST_USER
    filter: str | None = None


class CreateAcl(Header):
    """AUTH_CREATE_ACL (3006); the body is an AclInfo."""

    code = RequestCode.AUTH_CREATE_ACL
    subject: str | None = None


class UpdateAcl(Header):
    """AUTH_UPDATE_ACL (3007); the body is an AclInfo."""

    code = RequestCode.AUTH_UPDATE_ACL
    subject: str | None = None


class DeleteAcl(Header):
    """AUTH_DELETE_ACL (3008): one resource of a policy, or without one the whole ACL."""

    code = RequestCode.AUTH_DELETE_ACL
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAcl(Header):
    """AUTH_GET_ACL (3009)."""

    code = RequestCode.AUTH_GET_ACL
    subject: str | None = None


class ListAcl(Header):
    """AUTH_LIST_ACL (3010): subjects and resources whose names contain these texts."""

    code = RequestCode.AUTH_LIST_ACL
    subject_filter: str | None = None
    resource_filter: str | None = None
