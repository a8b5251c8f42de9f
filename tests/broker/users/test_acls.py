"""The ACLs of many users: what one step of a listing does."""

from aerobee.broker.users.acls import Acls, checked
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo


def test_a_listing_ends_its_step_after_each_acl_found_or_not() -> None:
    """A filter that matches nothing searches every entry, of each user in a step of its own."""
    acls = Acls(lambda: 1_000)
    for number in range(5):
        entry = PolicyEntryInfo(resource=f"Topic:T{number}", actions=["Pub"], decision="Allow")
        wanted = AclInfo(policies=[PolicyInfo(entries=[entry])])
        acls.update(f"user-{number}", finished(checked(wanted)))
    assert list(acls.listed(None, "nothing")) == [None] * 5
    found = list(acls.listed(None, "T3"))
    assert [acl.subject if acl else None for acl in found] == [None] * 3 + ["User:user-3", None]
    assert list(acls.listed("nobody", None)) == []
