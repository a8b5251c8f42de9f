"""The users and policies of one process: tables, files, requests, and what the first start makes.

With `aclEnable` those count that the files of ACL 1.0 make. Without `authenticationEnabled` the
users of the tables do not count: they are prepared from this host, so that turning it on is not the
first act. With it a file that does not decode ends the start: an
empty table would lock everybody out, and an older one could give rights back.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.access.authority import Authority
from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.settings.auth import codes_of, credentials_of
from aerobee.broker.errors import TableDamaged
from aerobee.broker.users.acl_files import AclFiles, read_accounts
from aerobee.broker.users.acls import Acls
from aerobee.broker.users.migration import NOT_MIGRATED, migrate
from aerobee.broker.users.shared_users import SharedUsers
from aerobee.broker.users.user_processor import UserProcessor
from aerobee.broker.users.users import Users, UserType
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.bodies.auth import UserInfo
from aerobee.remoting.wire.headers import auth as headers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aerobee.broker.config.settings.auth import AuthConfig
    from aerobee.broker.core.feature import Service
    from aerobee.broker.saved.save import SavedTable
    from aerobee.broker.saved.tables import Tables
    from aerobee.broker.users.acl_files import CutOff
    from aerobee.remoting.server.routes import Handler
    from aerobee.store.files.disk import Disk


FIRST_ADMIN: Final = "admin"
SECRET_BYTES: Final = 24

log = structlog.stdlib.get_logger(__name__)


class UserDirectory:
    """Users and policies, and the requests about them. `authority` answers the gate; None: no
    request needs an account. `files` are those of ACL 1.0; None without `aclEnable`.
    """

    def __init__(
        self,
        config: AuthConfig,
        tables: Tables,
        cut_off: CutOff,
        *,
        shared: Disk | None = None,
        open_topics: Collection[str] = (),
    ) -> None:
        """`shared`: the disk of the tables, where other processes use the same ones. `open_topics`:
        see `plain_table`.
        """
        self._config = config
        self.users = Users(lambda: config.max_users)
        self.acls = Acls(lambda: config.max_acl_entries)
        self.users_file = tables.private(self.users, "users.json")
        self.acls_file = tables.private(self.acls, "acls.json")
        self.first_admin: tuple[str, str] | None = None
        """Name and secret of the admin that this start has created, to be told once."""
        self.files: AclFiles | None = None
        self.authority: Authority | None = None
        if config.acl_enable:
            directory = Path(config.acl_config_dir).expanduser()
            self.files = AclFiles(directory, cut_off, open_topics)
            self.authority = self.files.authority
        elif config.authentication_enabled:
            self.authority = user_authority(self.users, self.acls, config)
        requests = self.requests = UserProcessor(
            self.users,
            self.acls,
            users_file=self.users_file,
            acls_file=self.acls_file,
            enabled=config.authentication_enabled,
            shared=shared is not None,
            cut_off=cut_off,
        )
        self.shared: SharedUsers | None = None
        if shared is not None:
            self.shared = SharedUsers(
                self.users,
                self.acls,
                users_file=self.users_file,
                acls_file=self.acls_file,
                disk=shared,
                cut_off=cut_off,
            )
        changing = self.shared.changing if self.shared else alone
        self.routes: Sequence[Route] = (
            Route(headers.CreateUser, changing(requests.create_user), "admin"),
            Route(headers.UpdateUser, changing(requests.update_user), "admin"),
            Route(headers.DeleteUser, changing(requests.delete_user), "admin"),
            Route(headers.GetUser, requests.user, "admin"),
            Route(headers.ListUser, requests.list_users, "admin"),
            Route(headers.CreateAcl, changing(requests.update_acl), "admin"),
            Route(headers.UpdateAcl, changing(requests.update_acl), "admin"),
            Route(headers.DeleteAcl, changing(requests.delete_acl), "admin"),
            Route(headers.GetAcl, requests.acl, "admin"),
            Route(headers.ListAcl, requests.list_acls, "admin"),
        )

    @property
    def saved(self) -> tuple[SavedTable, ...]:
        """The files to save: none without access control, when each change is saved by itself.

        Shared ones are saved in the turn of each change, and never else: that would undo those of
        other processes.
        """
        if not self._config.authentication_enabled or self.shared is not None:
            return ()
        return (self.users_file, self.acls_file)

    @property
    def services(self) -> tuple[Service, ...]:
        """The services that run in the background."""
        return tuple(service for service in (self.shared, self.files) if service is not None)

    def load(self) -> None:
        """Read the files; create the users that the settings name, and without any an admin.

        Raises: TableDamaged, OSError; Refusal when a setting has no legal name; ConfigurationError
        when accounts of ACL 1.0 cannot be read, or taken over.
        """
        if self.files is not None:
            self.files.load()
        if not self._config.authentication_enabled:
            self._load_prepared()
            return
        self._read()
        created = self._create_named()
        if self._config.migrate_auth_from_v1_enabled:
            created += self._migrate()
        if not self.users.super_users() and self.users.get(FIRST_ADMIN) is None:
            self.first_admin = FIRST_ADMIN, secrets.token_urlsafe(SECRET_BYTES)
            self._create_super(*self.first_admin)
            created.append(FIRST_ADMIN)
        if created:
            self.users_file.file.write_now(list(self.users.pieces()))
        for name in created:
            log.info("user.created_at_start", user=name)
        if not self.users.super_users():
            log.warning("user.no_super_user", path=str(self.users_file.file.path))

    def _load_prepared(self) -> None:
        """Read both files; that they cannot be read is told to who asks for users."""
        try:
            self._read()
        except (TableDamaged, OSError) as error:
            self.requests.unread = str(error)

    def _read(self) -> None:
        if self.shared is not None:
            self.shared.noted()
        self.users_file.load(self.users.load)
        self.acls_file.load(self.acls.load)

    def _create_named(self) -> list[str]:
        config = self._config
        named = (config.init_authentication_user, config.inner_client_authentication_credentials)
        created = []
        for credentials in filter(None, map(credentials_of, named)):
            if self.users.get(credentials[0]) is None:
                self._create_super(*credentials)
                created.append(credentials[0])
        return created

    def _migrate(self) -> list[str]:
        accounts, white = read_accounts(Path(self._config.acl_config_dir).expanduser())
        created, problems = migrate(accounts, self.users, self.acls)
        if problems:
            raise ConfigurationError(problems)
        if created:
            # Before the users: after a crash between the two they are taken over again, whole.
            self.acls_file.file.write_now(list(self.acls.pieces()))
            if white or any(account.white for account in created):
                log.warning("access.warning", text=NOT_MIGRATED)
        return [account.access_key for account in created]

    def _create_super(self, name: str, secret: str) -> None:
        self.users.create(UserInfo(username=name, password=secret, user_type=UserType.SUPER))


def user_authority(users: Users, acls: Acls, config: AuthConfig) -> Authority:
    """The authority of ACL 2.0, with the exceptions of the settings."""
    return Authority(
        users.account,
        acls.policies,
        open_codes=codes_of(config.authentication_whitelist),
        unrestricted=codes_of(config.authorization_whitelist),
        restricts=config.authorization_enabled,
    )


def alone(handler: Handler) -> Handler:
    """The handler itself, where no other process changes the tables."""
    return handler
