"""Every request that changes something is refused by a slave, or is known to be served by it."""

from pathlib import Path

from aerobee.broker.access.audit import CHANGES
from aerobee.broker.broker import Broker
from aerobee.broker.replication.slave_answers import ANSWERS
from aerobee.remoting.wire.codes import RequestCode
from tests.broker.desk import broker_config
from tests.broker.peers import HandClock
from tests.kit.quick_disk import QuickDisk

PUT = {"send", "reply", "ack", "transaction"}
"""The pools of requests that put something."""
OF_THIS_BROKER = {
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.AEROBEE_CLOSE_CLIENT,
    RequestCode.AEROBEE_PROMOTE,
    RequestCode.AEROBEE_SWITCH,
    RequestCode.AEROBEE_FOLLOW,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
}
"""Changes of what each broker has for itself."""


def test_a_slave_refuses_what_puts_or_changes_what_it_copies(tmp_path: Path) -> None:
    broker = Broker(broker_config(tmp_path), disk=QuickDisk(), clock=HandClock())
    names = {int(route.header.code) for route in broker.namesrv.routes}
    changing = {
        int(route.header.code)
        for route in broker.routes
        if route.pool in PUT or route.header.code in CHANGES
    }
    assert changing - names - ANSWERS.keys() == OF_THIS_BROKER & changing
