"""The rules that find why replication lags, stands or refuses. Pure.

`KINDS` has what is said of each problem. Each rule looks at a group for one problem and gives its
findings, or none. Source: operations/replication.md; administration §4.2 (GET_BROKER_HA_STATUS,
GET_BROKER_RUNTIME_INFO).
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.cli.ha_members import FOLLOWS, STANDINGS, decide, host_of, replicas_of
from aerobee.diagnosis import Finding, Severity
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aerobee.admin import ReplicaInfo, ReplicationStatus
    from aerobee.cli.ha_members import Member

SEGMENT, CLUSTER, PEERS = "mappedFileSizeCommitLog", "brokerClusterName", "haPeers"
ROLE, COPIES, WARN_AT = "brokerRole", "inSyncReplicas", "diskSpaceWarningLevelRatio"
WARN_AT_PERCENT: Final = 90
"""From here on brokers refuse sends, unless they say another percentage."""
UNITS: Final = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}
FREE: Final = re.compile(r"Free : ([0-9]{1,19}(?:\.[0-9]+)?) ([KMGTP]iB|B)")
NO_SPACE_KNOWN: Final = "Total : 0 B,"
"""How `commitLogDirCapacity` begins where the system does not tell it."""
AWAY: Final = ("unreachable", "searching")
"""The states of a slave that has no master."""
LATE_S: Final = 2.0
"""A slave that lacks nothing older than that is told of no further."""


class Kind(NamedTuple):
    """The text about a problem, and what helps."""

    severity: Severity
    text: str
    advice: str


SLOW: Final = (
    "its disk, processor or network cannot keep up: see to these, or send less; under SYNC_FLUSH "
    "each report of the slave waits for its disk"
)
KINDS: Final[Mapping[str, Kind]] = {
    "not_reachable": Kind(
        Severity.ERROR,
        "{address} does not say how it stands: {problem}",
        "start it again, or see what is between it and this machine",
    ),
    "two_masters": Kind(
        Severity.ERROR,
        "several masters answer, and each takes sends: {masters}",
        "stop the one with the earlier epoch, and start it again as a slave: brokerRole SLAVE, a "
        "brokerId of its own",
    ),
    "no_master": Kind(
        Severity.ERROR,
        "no master of the group answers; of its slaves {address} has most, up to {end}",
        "start the master again; if it is gone for good: aerobee ha promote {address}",
    ),
    "none_elected": Kind(
        Severity.ERROR,
        "no master of the group answers: {problem}; of its members {address} has most, up to {end}",
        "the group elects by itself as soon as etcd answers and a member of the sync set runs; "
        "only if its record or that member is gone for good: aerobee ha elect --unclean {address}, "
        "which gives up what {address} does not have",
    ),
    "master_not_known": Kind(
        Severity.WARNING,
        "the name server knows no master of the group, and {address} follows {followed}: producers "
        "that ask here cannot send",
        "see that the namesrvAddr of that master names this name server; if it is the master of "
        "another group, give this one its own brokerName, or its own etcdPrefix",
    ),
    "unclean_master": Kind(
        Severity.WARNING,
        "epoch {epoch} began without the sync set: messages acknowledged before are lost",
        "nothing brings them back, unless a member that was away has them: its log is kept when it "
        "is cut",
    ),
    "disk_full": Kind(
        Severity.ERROR,
        "the disk of {address} is {used:.0%} used: a master refuses sends, and a slave takes "
        "nothing once the next file of its log has no room",
        "make room there, or give it a larger disk; it goes on by itself within a minute",
    ),
    "disk_nearly_full": Kind(
        Severity.WARNING,
        "the disk of {address} has {free:.1f} MiB left, less than a file of its log takes",
        "make room there, or give it a larger disk, before the present file is full",
    ),
    "segment_sizes": Kind(
        Severity.ERROR,
        SEGMENT + " of {address} is {own}, and that of its master {theirs}: it cannot have the "
        "same log",
        "stop it, set "
        + SEGMENT
        + " there to {theirs}, and start it with an empty store directory",
    ),
    "another_cluster": Kind(
        Severity.ERROR,
        "{address} is of the cluster {own}, and the master of {theirs}: it does not follow it",
        "set " + CLUSTER + " there to {theirs} and start it again, or give it another brokerName",
    ),
    "diverged": Kind(
        Severity.ERROR,
        "{address} has stopped: {problem}",
        "aerobee ha follow {address} --master {master} --dry-run says what only it has, and with "
        "--cut instead keeps that and gives it up at its next start",
    ),
    "unrelated": Kind(
        Severity.ERROR,
        "{address} has stopped: {problem}",
        "stop it, keep its data directory aside, and start it with an empty one: it copies the log "
        "anew",
    ),
    "deleted": Kind(
        Severity.ERROR,
        "the log of {address} ends at {end}, and the master has deleted what comes behind that: "
        "the slave was away for too long",
        "stop it, keep its store directory aside, and start it with an empty one, or with a copy "
        "of the master's, made while that is stopped",
    ),
    "ahead": Kind(
        Severity.ERROR,
        "{address}: " + STANDINGS["ahead"],
        "aerobee ha follow {address} --master {master} --dry-run says where the two logs part; a "
        "store that was copied while its master ran is taken after the next start of the master",
    ),
    "stuck": Kind(
        Severity.ERROR,
        "{address} gets nothing: {problem}",
        "mend what that says; the slave looks again within a minute",
    ),
    "not_listed": Kind(
        Severity.ERROR,
        PEERS + " of the master at {master} is {peers}, so {host} may not copy its log",
        "add {host} to " + PEERS + " of the master, and start that again",
    ),
    "apart": Kind(
        Severity.ERROR,
        "{address} does not reach its master: {problem}",
        "see that it reaches brokerIP2 and haListenPort of the master, and that a name server of "
        "the master is in its namesrvAddr",
    ),
    "another_master": Kind(
        Severity.WARNING,
        "{address} follows {followed}, and the master at {master} has no connection from {host}",
        "look again in 5 s; if it stays: aerobee ha follow {address} --master {master}",
    ),
    "not_counted": Kind(
        Severity.WARNING,
        "{address} follows {followed}, and the master at {master} has no connection from {host}",
        "look again in 5 s; if it stays, see whether another process runs with its brokerId",
    ),
    "silent": Kind(
        Severity.WARNING,
        "{address}: " + STANDINGS["silent"],
        "look again in 5 s; if it stays, its log says why",
    ),
    "behind": Kind(Severity.WARNING, "{lag}", SLOW),
    "falls_behind": Kind(Severity.ERROR, "{lag}; {rates}", SLOW),
    "gets_nothing": Kind(
        Severity.ERROR,
        "{lag}; {rates}",
        "look at its log and its disk: it says within a minute what is against it",
    ),
    "catches_up": Kind(
        Severity.NOTE,
        "{lag}; {rates}",
        "nothing: it has caught up in about {seconds:.0f} s at this rate",
    ),
    "asynchronous": Kind(
        Severity.NOTE,
        "sends are answered before a slave has them: with the machine of the master the last "
        "moment is lost",
        f"nothing, if that is as wanted; else {ROLE} SYNC_MASTER with {COPIES} 2",
    ),
    "waits_for_nobody": Kind(
        Severity.WARNING,
        ROLE + " is SYNC_MASTER and " + COPIES + " {copies}: sends wait for nobody, and are "
        "answered with success before a slave has them",
        "set " + COPIES + " to 2 in the settings of {address}, and start it again",
    ),
    "acknowledges_nothing": Kind(
        Severity.ERROR,
        "{address}: {problem}; messages are stored, and producers are told FLUSH_SLAVE_TIMEOUT",
        "start members that are down, or another one that has an empty directory: once it has "
        "the log, it takes the place of one that is gone",
    ),
    "too_few_in_sync": Kind(
        Severity.ERROR,
        "slaves in sync: {in_sync}, and sends need {needed}: messages are stored, and producers "
        "are told SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT",
        "bring the missing slaves back; or set "
        + COPIES
        + " of {address} to {possible}, and start "
        "it again",
    ),
    "no_peers": Kind(
        Severity.NOTE,
        PEERS + " of {address} is empty: once it is the master, no slave may follow it",
        "set " + PEERS + " there to the addresses of the other members, and start it again",
    ),
}
"""By their names for programs; the names in braces are those of the facts."""


class Look(NamedTuple):
    """A member of a group, and what it says of itself; empty where it does not."""

    member: Member
    settings: Mapping[str, str]
    stats: Mapping[str, str]
    grown: int = 0
    """Bytes that its log has grown between two looks."""

    @property
    def address(self) -> str:
        """Its listenPort, as `host:port`."""
        return self.member.broker.address


class GroupLook:
    """The members of a group, in the terms that the rules use."""

    def __init__(self, name: str, looks: Sequence[Look], seconds: float = 0.0) -> None:
        """`seconds`: the time between the two looks at each log; 0.0: there was one."""
        self.name, self.looks, self.seconds = name, looks, seconds
        self.masters: list[tuple[Look, ReplicationStatus]] = []
        self.slaves: list[tuple[Look, ReplicationStatus]] = []
        for look in looks:
            status = look.member.status
            if status is not None and not status.shadow:
                (self.masters if status.is_master else self.slaves).append((look, status))
        members = [look.member for look in looks]
        self.replicas = replicas_of(members, [status for _, status in self.masters])
        self.decides = decide(status for _, status in self.masters + self.slaves)
        """Whether the group decides on its master by itself."""

    @property
    def master(self) -> tuple[Look, ReplicationStatus] | None:
        """Its only master that answers."""
        return self.masters[0] if len(self.masters) == 1 else None

    def following(self) -> Iterator[tuple[Look, ReplicationStatus]]:
        """The slaves that get the log, as they say."""
        return ((look, status) for look, status in self.slaves if status.state == FOLLOWS)


def found_to_be(kind: str, look: Look | None = None, **facts: object) -> Finding:
    """A problem, with what is known of it; `address` is that of the member."""
    severity, text, advice = KINDS[kind]
    if look is not None:
        facts["address"] = look.address
    if not facts.get("problem"):
        # Members of older versions name no reason.
        text = text.replace(": {problem}", "")
    return Finding(
        kind=kind,
        severity=severity,
        text=text.format_map(facts),
        advice=advice.format_map(facts),
        members=[] if look is None else [look.address],
    )


# ── Who is there ──


def silent_members(group: GroupLook) -> Iterator[Finding]:
    """A member does not answer."""
    for look in group.looks:
        if look.member.status is None:
            yield found_to_be("not_reachable", look, problem=look.member.problem)


def masters(group: GroupLook) -> Iterator[Finding]:
    """No master answers, or several do."""
    if len(group.masters) > 1:
        ends = ", ".join(
            f"{look.address} (epoch {'unknown' if status.epoch is None else status.epoch})"
            for look, status in group.masters
        )
        yield found_to_be("two_masters", masters=ends)
    # A slave that has stopped may be of another history: it is no candidate.
    left = [(look, status) for look, status in group.slaves if status.state in AWAY]
    following = next(group.following(), None)
    if following is not None and not group.masters:
        look, status = following
        yield found_to_be("master_not_known", look, followed=status.master_address)
    if left and not group.masters and following is None:
        look, status = max(left, key=lambda slave: slave[1].max_offset)
        kind = "none_elected" if group.decides else "no_master"
        yield found_to_be(kind, look, end=status.max_offset, problem=status.problem)


def unclean(group: GroupLook) -> Iterator[Finding]:
    """A master was elected that may have lacked messages."""
    for look, status in group.masters:
        if status.unclean_epoch:
            yield found_to_be("unclean_master", look, epoch=status.unclean_epoch)


# ── Slaves that get nothing ──


def full_disks(group: GroupLook) -> Iterator[Finding]:
    """The disk of a member is full, or has no room for one more file of the log."""
    for look in group.looks:
        used = number(look.stats.get("commitLogDiskRatio", "")) or 0.0
        percent = whole_number(look.settings.get(WARN_AT, "")) or WARN_AT_PERCENT
        free, size = free_bytes(look.stats), whole_number(look.settings.get(SEGMENT, ""))
        if used * 100 >= percent:
            yield found_to_be("disk_full", look, used=used)
        elif free is not None and size is not None and free < size:
            yield found_to_be("disk_nearly_full", look, free=free / 1_048_576)


def segment_sizes(group: GroupLook) -> Iterator[Finding]:
    """The logs are cut into files of different sizes, and are copied byte for byte."""
    for look, theirs, own in differing(group, SEGMENT):
        yield found_to_be("segment_sizes", look, theirs=theirs, own=own)


def other_clusters(group: GroupLook) -> Iterator[Finding]:
    """A member is of another cluster than its master."""
    for look, theirs, own in differing(group, CLUSTER):
        yield found_to_be("another_cluster", look, theirs=theirs, own=own)


def standing_still(group: GroupLook) -> Iterator[Finding]:
    """A slave has stopped: its log differs, or what it needs is gone."""
    master = "M" if group.master is None else group.master[0].address
    for look, status in group.slaves:
        replica = group.replicas.get(look.address)
        standing = "" if replica is None else replica.standing
        if status.state == "diverged":
            if all(other is not look for other, *_ in differing(group, SEGMENT)):
                kind = "unrelated" if group.decides else "diverged"
                yield found_to_be(kind, look, problem=status.problem, master=master)
        elif is_deleted(group, status) or standing == "deleted":
            yield found_to_be("deleted", look, end=status.max_offset)
        elif standing == "ahead":
            yield found_to_be("ahead", look, master=master)
        elif status.state == "stuck":
            yield found_to_be("stuck", look, problem=status.problem)


def apart(group: GroupLook) -> Iterator[Finding]:
    """A slave has no connection to a master that answers here."""
    if group.master is None:
        return
    master, _ = group.master
    peers = master.settings.get(PEERS)
    for look, status in group.slaves:
        facts = {"master": master.address, "host": host_of(look.address)}
        lost = status.state == FOLLOWS and look.address not in group.replicas
        if not lost and status.state not in AWAY:
            continue
        if peers is not None and not admits(peers, facts["host"]):
            yield found_to_be("not_listed", look, peers=peers or "empty", **facts)
        elif lost:
            followed = status.master_address or "nobody known here"
            kind = "not_counted" if group.decides else "another_master"
            yield found_to_be(kind, look, followed=followed, **facts)
        elif not is_deleted(group, status):
            yield found_to_be("apart", look, problem=status.problem)


# ── Slaves that lag ──


def lagging(group: GroupLook) -> Iterator[Finding]:
    """A slave gets the log, and is behind."""
    if group.master is None:
        return
    for look, _ in group.following():
        replica = group.replicas.get(look.address)
        if replica is None or replica.standing in ("ahead", "deleted", "unreadable"):
            continue
        if replica.standing == "silent":
            yield found_to_be("silent", look)
        elif replica.lag and is_late(replica):
            yield behind(group, group.master[0], look, replica)


def behind(group: GroupLook, master: Look, look: Look, replica: ReplicaInfo) -> Finding:
    """Whether a slave that is late gains on its master."""
    lag = f"{look.address} lacks {replica.lag} bytes"
    if replica.lag_s is not None:
        lag += f", and had everything {replica.lag_s:.0f} s ago"
    if not group.seconds:
        return found_to_be("behind", look, lag=lag)
    written, copied = (member.grown / group.seconds for member in (master, look))
    rates = f"the master writes {written / 1e6:.1f} MB/s, and it takes {copied / 1e6:.1f} MB/s"
    if copied > written:
        seconds = replica.lag / (copied - written)
        return found_to_be("catches_up", look, lag=lag, rates=rates, seconds=seconds)
    return found_to_be("falls_behind" if copied else "gets_nothing", look, lag=lag, rates=rates)


# ── Settings ──


def waiting(group: GroupLook) -> Iterator[Finding]:
    """How many slaves a send waits for, and whether they are there."""
    if group.master is None:
        return
    master, status = group.master
    if group.decides:
        if status.problem:
            yield found_to_be("acknowledges_nothing", master, problem=status.problem)
        return
    role, copies = master.settings.get(ROLE), whole_number(master.settings.get(COPIES, ""))
    if role == "ASYNC_MASTER" and group.slaves:
        yield found_to_be("asynchronous", master)
    if role != "SYNC_MASTER" or copies is None:
        return
    in_sync = len({replica.host for replica in status.replicas if replica.in_sync})
    if copies < 2:
        yield found_to_be("waits_for_nobody", master, copies=copies)
    elif in_sync < copies - 1:
        facts = {"needed": copies - 1, "in_sync": in_sync, "possible": in_sync + 1}
        yield found_to_be("too_few_in_sync", master, **facts)


def no_port_later(group: GroupLook) -> Iterator[Finding]:
    """A slave could become the master, and nobody may copy from it then."""
    for look, _ in group.slaves:
        if look.settings.get(PEERS) == "":
            yield found_to_be("no_peers", look)


RULES: Sequence[Callable[[GroupLook], Iterator[Finding]]] = (
    silent_members,
    masters,
    unclean,
    full_disks,
    segment_sizes,
    other_clusters,
    standing_still,
    apart,
    lagging,
    waiting,
    no_port_later,
)


def findings_of(group: GroupLook) -> list[Finding]:
    """All findings of a group, errors first."""
    order = list(Severity)
    findings = [finding for rule in RULES for finding in rule(group)]
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def differing(group: GroupLook, key: str) -> Iterator[tuple[Look, str, str]]:
    """Each slave whose setting is not that of the master, with the two values."""
    if group.master is None:
        return
    theirs = group.master[0].settings.get(key)
    for look, _ in group.slaves:
        own = look.settings.get(key)
        if theirs and own and theirs != own:
            yield look, theirs, own


def is_deleted(group: GroupLook, status: ReplicationStatus) -> bool:
    """Whether the master's log begins behind the end of the slave's, which is not empty."""
    if group.master is None or not status.max_offset:
        return False
    begin = whole_number(group.master[0].stats.get("commitLogMinOffset", ""))
    return begin is not None and status.max_offset < begin


def is_late(replica: ReplicaInfo) -> bool:
    """Whether a slave is behind for longer than a look takes; Java's tell no time."""
    return not replica.in_sync or (replica.lag_s is not None and replica.lag_s > LATE_S)


def admits(peers: str, host: str) -> bool:
    """Whether haPeers lists a host; of a name nobody knows that here."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(peers)
    for part in peers.split(";"):
        with suppress(ValueError):
            if address in ipaddress.ip_network(part.strip()):
                return True
    return False


def free_bytes(stats: Mapping[str, str]) -> int | None:
    """The free space that a broker tells with a unit; None where it does not."""
    capacity = stats.get("commitLogDirCapacity", "")
    match = None if capacity.startswith(NO_SPACE_KNOWN) else FREE.search(capacity)
    return None if match is None else int(float(match[1]) * 1_024 ** UNITS[match[2]])


def number(text: str) -> float | None:
    """A number as brokers tell it."""
    try:
        return float(text)
    except ValueError:
        return None
