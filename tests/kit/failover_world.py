"""A group of brokers, a decider, clients and a network in one process, and all that can go wrong.

Every decision is that of the product's pure code; what is modelled is what that code stands on: one
clock, requests to the decider whose answers are late or lost, connections that break, members that
are killed or stand still. After each step the laws are checked. A subclass plants a fault.

A log is a row of messages; an offset is a number of messages.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from aerobee.broker.failover.election import Candidate, objection
from aerobee.broker.failover.lease import Lease
from aerobee.broker.failover.record import (
    Record,
    elected,
    first_record,
    given_back,
    with_set,
)
from aerobee.broker.failover.sync_set import SyncSet
from aerobee.store.format.epochs import Epoch, common_end, cut_at

LEASE = 10.0
LATE = 8.0
LEAST = 2
DAMAGED = "damaged"


WORLD = {"tick": 10, "partition": 3, "heal": 8, "arrive": 20}
"""Steps, and how often they are tried beside the others."""
ANYONE = {"wake": 4, "lose_connection": 4, "damage": 3, "renewal_heard": 14, "report": 16}
RUNNING = {
    "kill": 3,
    "stop": 3,
    "give_up": 6,
    "look": 6,
    "take": 6,
    "renew": 14,
    "renewal_answered": 14,
    "renewal_lost": 1,
    "change_set": 14,
    "give_back": 1,
    "follow": 10,
    "fetch": 18,
    "copy_tables": 6,
    "send": 12,
    "answer": 16,
    "commit_offset": 2,
    "read": 4,
}
TROUBLE = ("partition", "kill", "stop", "lose_connection", "renewal_lost", "give_back")
FACTORS = ((0.3, 1, 1, 2), (0.01, 0.04, 0.15, 0.4))
"""Each walk is another weather: what happens always, and trouble, is frequent or rare in it."""


class LawBroken(AssertionError):
    """What must never happen has happened."""


@dataclass
class Request:
    """A compare-and-swap on its way: it may arrive after its sender has given it up."""

    member: int
    version: int
    record: Record
    lease: str
    takes: bool


@dataclass
class Decider:
    """What etcd does: one record, and one holder whose lease ends by the decider's clock."""

    record: Record | None = None
    version: int = 0
    holder: str = ""
    ends: float = 0.0
    leases: dict[str, float] = field(default_factory=dict)

    def expire(self, now: float) -> None:
        self.leases = {lease: ends for lease, ends in self.leases.items() if ends > now}
        if self.holder not in self.leases:
            self.holder = ""

    def apply(self, request: Request) -> bool:
        if request.version != self.version:
            return False
        if request.takes:
            if self.holder or request.lease not in self.leases:
                return False
            self.holder = request.lease
        elif self.holder != request.lease:
            return False
        elif not request.record.lease:
            self.holder = ""
        self.record, self.version = request.record, self.version + 1
        return True


@dataclass
class Member:
    """A broker. What a kill leaves is in the first block."""

    id: int
    log: list[str] = field(default_factory=list)
    epochs: tuple[Epoch, ...] = ()
    epoch: int = 0
    tables: int = 0
    """The consumer offset that it knows."""

    alive: bool = True
    stopped: bool = False
    leads: SyncSet | None = None
    lease: Lease = field(default_factory=lambda: Lease(LEASE))
    lease_id: str = ""
    wish: Request | None = None
    """Sent to the decider, and its outcome is not known."""
    renewing: tuple[str, float, bool] | None = None
    """A renewal on its way: the lease, when it began, whether the decider has heard of it."""
    view: tuple[Record, int] | None = None
    follows: tuple[int, int] | None = None
    """The master and its epoch."""
    reporting: int = -1
    """A report on its way."""
    confirmed: int = 0
    copied_tables: bool = False
    unanswered: list[tuple[int, str]] = field(default_factory=list)
    """Offset and message of sends that wait for their answer."""
    tables_at_join: dict[int, int] = field(default_factory=dict)
    """Of members that joined its set: the offset that each had to copy before."""
    owed_tables: int = 0
    """The offset of its master when it began to follow."""


class World:
    """Three members. A step is a name and what it is about; `do` says whether it was possible."""

    def __init__(self, random_: random.Random, size: int = 3) -> None:
        self.random = random_
        self.now = 0.0
        self.members = {number: Member(number) for number in range(1, size + 1)}
        self.decider = Decider()
        self.in_flight: list[Request] = []
        self.cut: set[frozenset[int]] = set()
        """Pairs that do not reach each other; 0 is the decider."""
        self.sent = 0
        self.offset = 0
        self.acknowledged: dict[int, str] = {}
        self.seen: dict[int, str] = {}
        """Each offset with the message that a client knows of it."""
        self.last_epoch = 0
        self.damaged = False
        self.counts: Counter[str] = Counter()

    names = (*WORLD, *ANYONE, *RUNNING)
    weather: Mapping[str, float] = {}
    """How much more or less often than usual a step is taken."""

    # ── The faults that a subclass plants ──

    checks_lease_at_answer = True
    shrinks_before_commit = False
    forgets_closed_connections = False
    believes_name_servers = False
    joins_without_tables = False
    reads_log_through = True
    takes_read_for_no = False
    """An answer was lost, and the record is the old one: the request may still arrive."""
    renews_after_end = False

    # ── What happens ──

    def walk(self, steps: int) -> None:
        """So many random steps. Raises: LawBroken."""
        weights = [
            weight * self.random.choice(FACTORS[name in TROUBLE]) * self.weather.get(name, 1)
            for name, weight in (WORLD | ANYONE | RUNNING).items()
        ]
        for name in self.random.choices(self.names, weights, k=steps):
            if self.do(name):
                self.counts[name] += 1
                self.check()

    def do(self, name: str) -> bool:
        """A step of the world, or of the first member that it is possible for."""
        if name in WORLD:
            return bool(getattr(self, name)())
        members = self.random.sample(list(self.members.values()), len(self.members))
        if name in RUNNING:
            members = [member for member in members if member.alive and not member.stopped]
        return any(getattr(self, name)(member) for member in members)

    def reaches(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.cut

    # ── The world ──

    def tick(self) -> bool:
        self.now += self.random.choice((0.1, 0.3, 1.2))
        self.decider.expire(self.now)
        return True

    def partition(self) -> bool:
        pair = frozenset(self.random.sample([0, *self.members], 2))
        self.cut.add(pair)
        return True

    def heal(self) -> bool:
        if not self.cut:
            return False
        self.cut.discard(self.random.choice(sorted(self.cut, key=sorted)))
        return True

    def kill(self, member: Member) -> bool:
        kept = Member(member.id, member.log, member.epochs, member.epoch, member.tables)
        kept.alive = False
        self.members[member.id] = kept
        return True

    def stop(self, member: Member) -> bool:
        member.stopped = True
        return True

    def wake(self, member: Member) -> bool:
        if member.alive and not member.stopped:
            return False
        member.alive, member.stopped = True, False
        return True

    def lose_connection(self, member: Member) -> bool:
        if member.follows is None:
            return False
        master = self.members[member.follows[0]]
        member.follows, member.reporting = None, -1
        self.closed(master, member.id)
        return True

    def closed(self, master: Member, slave: int) -> None:
        sync = master.leads
        if sync is None:
            return
        if self.shrinks_before_commit and slave in sync.members and len(sync.members) > 1:
            sync.members -= {slave}
            sync.appended(sync.end, self.now)
        if self.forgets_closed_connections:
            ends = [sync.end_of(member) for member in sync.members if member != slave]
            sync.confirmed = max(sync.confirmed, min(ends))

    def damage(self, member: Member) -> bool:
        """A bit flips in the log of one member that is down."""
        if self.damaged or member.alive or not member.log:
            return False
        self.damaged = True
        member.log[self.random.randrange(len(member.log))] = DAMAGED
        return True

    # ── The decider ──

    def arrive(self) -> bool:
        """The decider hears of a request; its sender may hear of the outcome."""
        if not self.in_flight:
            return False
        request = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
        member = self.members[request.member]
        if not self.reaches(0, member.id):
            return False
        applied = self.decider.apply(request)
        self.counts["applied"] += applied
        if applied and request.takes:
            self.check_elected(member)
        if (
            member.wish is request
            and member.alive
            and not member.stopped
            and self.random.random() < 0.8
        ):
            self.outcome(member, request, applied=applied)
        return True

    def outcome(self, member: Member, request: Request, *, applied: bool) -> None:
        member.wish = None
        if applied:
            member.view = request.record, request.version + 1
            if request.takes:
                self.lead(member, request.record)
            elif member.leads is not None:
                member.leads.decided(request.record)
                if not request.record.lease:
                    self.demote(member)
        elif request.takes:
            member.lease.end()
        else:
            self.look_at(member)

    def give_up(self, member: Member) -> bool:
        """The answer did not come: what the record says is looked up."""
        request = member.wish
        if request is None or not self.reaches(0, member.id):
            return False
        if request.takes:
            # It will see whose the lease is like everybody else.
            member.wish = None
            member.lease.end()
            return True
        self.look_at(member)
        if member.leads is None:
            return True
        assert member.view is not None
        if member.view[0] == request.record:
            self.outcome(member, request, applied=True)
        elif self.takes_read_for_no:
            member.wish, member.leads.proposed = None, None
            member.leads.appended(member.leads.end, self.now)
        elif request not in self.in_flight:
            self.in_flight.append(request)
        else:
            self.in_flight.append(Request(**vars(request)))
            member.wish = self.in_flight[-1]
        return True

    def look(self, member: Member) -> bool:
        if not self.reaches(0, member.id):
            return False
        return self.look_at(member)

    def look_at(self, member: Member) -> bool:
        """A member reads the record, and stops to lead when it is another's."""
        record = self.decider.record
        if record is None:
            return False
        member.view = record, self.decider.version
        if member.leads is not None and record.epoch != member.epoch:
            self.demote(member)
        return True

    def take(self, member: Member) -> bool:
        if member.wish or member.leads or not self.reaches(0, member.id):
            return False
        decider = self.decider
        damage = DAMAGED if self.reads_log_through and DAMAGED in member.log else ""
        candidate = Candidate(member.id, member.epoch, damage, founder=member.id == 1)
        if objection(candidate, decider.record, held=bool(decider.holder)):
            return False
        lease = f"{member.id}-{self.now:.1f}-{self.sent}-{decider.version}"
        decider.leases[lease] = self.now + LEASE
        member.lease = Lease(LEASE)
        member.lease.renewed(self.now)
        member.lease_id = lease
        record = (
            first_record(member.id, lease)
            if decider.record is None
            else elected(decider.record, member.id, lease, LEAST)
        )
        self.ask(member, Request(member.id, decider.version, record, lease, takes=True))
        return True

    def ask(self, member: Member, request: Request) -> None:
        member.wish = request
        self.in_flight.append(request)

    def lead(self, member: Member, record: Record) -> None:
        member.follows, member.reporting = None, -1
        member.epoch = record.epoch
        member.epochs = (*member.epochs, Epoch(record.epoch, len(member.log)))
        confirmed = min(member.confirmed, len(member.log))
        member.leads = SyncSet(record, len(member.log), confirmed, LEAST, self.now)
        member.unanswered = []

    def demote(self, member: Member) -> None:
        if member.leads is not None:
            member.confirmed = member.leads.confirmed
        member.leads, member.wish, member.unanswered = None, None, []
        member.lease.end()

    def renew(self, member: Member) -> bool:
        if member.leads is None or member.renewing:
            return False
        member.renewing = member.lease_id, self.now, False
        return True

    def renewal_heard(self, member: Member) -> bool:
        if member.renewing is None or member.renewing[2] or not self.reaches(0, member.id):
            return False
        lease, began, _ = member.renewing
        if lease not in self.decider.leases:
            return False
        self.decider.leases[lease] = self.now + LEASE
        member.renewing = lease, began, True
        return True

    def renewal_answered(self, member: Member) -> bool:
        if member.renewing is None or not member.renewing[2] or not self.reaches(0, member.id):
            return False
        lease, began, _ = member.renewing
        member.renewing = None
        if lease == member.lease_id:
            member.lease.renewed(began)
            if self.renews_after_end:
                member.lease = Lease(LEASE)
                member.lease.renewed(began)
        return True

    def renewal_lost(self, member: Member) -> bool:
        lost, member.renewing = member.renewing is not None, None
        return lost

    def change_set(self, member: Member) -> bool:
        if member.leads is None or member.wish or member.view is None:
            return False
        ready = [
            slave.id
            for slave in self.members.values()
            if slave.follows == (member.id, member.epoch)
            and (slave.copied_tables or self.joins_without_tables)
        ]
        wanted = member.leads.change(self.now, LATE, ready)
        record, version = member.view
        if wanted is None or record.epoch != member.epoch:
            return False
        changed = with_set(record, wanted)
        member.leads.propose(wanted)
        for joining in wanted - member.leads.members:
            member.tables_at_join[joining] = self.members[joining].owed_tables
        self.ask(member, Request(member.id, version, changed, member.lease_id, takes=False))
        return True

    def give_back(self, member: Member) -> bool:
        if member.leads is None or member.wish or member.view is None:
            return False
        record, version = member.view
        if record.epoch != member.epoch:
            return False
        member.lease.end()
        self.ask(
            member, Request(member.id, version, given_back(record), member.lease_id, takes=False)
        )
        return True

    # ── Replication ──

    def follow(self, member: Member) -> bool:
        """A slave finds its master, cuts its log, and begins to copy."""
        if member.leads or member.wish or member.follows:
            return False
        if self.believes_name_servers:
            master = self.random.choice([one for one in self.members.values() if one is not member])
        else:
            if not self.reaches(0, member.id) or not self.look_at(member):
                return False
            assert member.view is not None
            master = self.members[member.view[0].master]
        if master.leads is None or not self.talk(member, master):
            return False
        if not self.believes_name_servers and master.epoch < member.epoch:
            return False
        common = common_end(member.epochs, len(member.log), master.epochs, len(master.log))
        common = common if member.epochs else 0
        if common is None:
            return False
        del member.log[common:]
        member.epochs = cut_at(member.epochs, common)
        if master.epoch < member.epoch:
            raise LawBroken(f"{member.id} has gone back from {member.epoch} to {master.epoch}")
        member.copied_tables = False
        member.epoch = master.epoch
        member.owed_tables = master.tables
        member.follows, member.reporting = (master.id, master.epoch), common
        member.confirmed = min(member.confirmed, common)
        return True

    def talk(self, one: Member, other: Member) -> bool:
        runs = other.alive and not other.stopped
        return runs and one is not other and self.reaches(one.id, other.id)

    def master_of(self, member: Member) -> Member | None:
        """The other end of its connection, if that still is what it was."""
        if member.follows is None:
            return None
        number, epoch = member.follows
        master = self.members[number]
        if not self.talk(member, master) or master.leads is None or master.epoch != epoch:
            return None
        return master

    def fetch(self, member: Member) -> bool:
        master = self.master_of(member)
        if master is None or master.leads is None:
            return False
        at = len(member.log)
        if at < len(master.log) and master.log[at] != DAMAGED:
            member.log.append(master.log[at])
            epoch = max(
                (one for one in master.epochs if one.start <= at), key=lambda one: one[::-1]
            )
            if epoch not in member.epochs:
                member.epochs = (*member.epochs, epoch)
        member.confirmed = max(member.confirmed, min(master.leads.confirmed, len(member.log)))
        member.reporting = len(member.log)
        return True

    def report(self, member: Member) -> bool:
        master = self.master_of(member)
        if master is None or master.leads is None or member.reporting < 0:
            return False
        master.leads.reported(member.id, member.reporting, self.now)
        member.reporting = -1
        return True

    def copy_tables(self, member: Member) -> bool:
        master = self.master_of(member)
        if master is None:
            return False
        member.tables, member.copied_tables = master.tables, True
        return True

    # ── Clients ──

    def send(self, member: Member) -> bool:
        if member.leads is None or not member.lease.may_answer(self.now):
            return False
        self.sent += 1
        member.log.append(f"m{self.sent}")
        member.leads.appended(len(member.log), self.now)
        member.unanswered.append((len(member.log) - 1, member.log[-1]))
        return True

    def answer(self, member: Member) -> bool:
        sync = member.leads
        if sync is None or not member.unanswered:
            return False
        offset, message = member.unanswered[0]
        if self.checks_lease_at_answer and not member.lease.may_answer(self.now):
            return False
        if not sync.may_acknowledge(offset + 1):
            return False
        del member.unanswered[0]
        if member.epoch < self.last_epoch:
            raise LawBroken(f"epoch {member.epoch} acknowledges after epoch {self.last_epoch}")
        self.last_epoch = member.epoch
        self.note(offset, message, "acknowledged")
        self.acknowledged[offset] = message
        return True

    def commit_offset(self, member: Member) -> bool:
        if member.leads is None or not member.lease.may_answer(self.now):
            return False
        self.offset += 1
        member.tables = self.offset
        return True

    def read(self, member: Member) -> bool:
        if not member.log:
            return False
        confirmed = member.confirmed if member.leads is None else member.leads.confirmed
        for offset, message in enumerate(member.log[:confirmed]):
            if message != DAMAGED:
                self.note(offset, message, "read")
        return True

    def note(self, offset: int, message: str, how: str) -> None:
        before = self.seen.setdefault(offset, message)
        if before != message:
            raise LawBroken(f"offset {offset} was {before}, and {message} is {how}")

    # ── Laws ──

    def check_elected(self, member: Member) -> None:
        """The next master has all that was acknowledged."""
        for offset, message in self.acknowledged.items():
            if offset >= len(member.log) or member.log[offset] != message:
                raise LawBroken(f"master {member.id} lacks {message}, acknowledged at {offset}")
        for master in self.members.values():
            joined = master.tables_at_join.get(member.id, 0)
            if member.tables < joined:
                raise LawBroken(
                    f"master {member.id} has offset {member.tables}, joined at {joined}"
                )

    def check(self) -> None:
        """At most one member may acknowledge, at any moment."""
        may = [
            member.id
            for member in self.members.values()
            if member.alive and member.leads is not None and member.lease.may_answer(self.now)
        ]
        if len(may) > 1:
            raise LawBroken(f"{may} may acknowledge, all of them")
