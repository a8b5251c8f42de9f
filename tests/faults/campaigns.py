"""The table of campaigns, in the order of the report. A new one is a line here."""

from tests.aerobee.spark.queries import Q1
from tests.faults.admin_scale import A1
from tests.faults.clock_jumps import R14
from tests.faults.dedupe_model import D1
from tests.faults.descriptors import W3
from tests.faults.exchanges import R20
from tests.faults.extent_kills import R1E
from tests.faults.far_behind import R11
from tests.faults.feature_clocks import R14B
from tests.faults.feature_kills import R1F
from tests.faults.few_descriptors import R15
from tests.faults.flips import R7
from tests.faults.follow_kills import H14, H15
from tests.faults.forged_records import W2
from tests.faults.frame_storm import R8
from tests.faults.grand_campaign import GC1
from tests.faults.greedy_requests import G1
from tests.faults.group_failover import F1
from tests.faults.group_failover_java import F1J
from tests.faults.grpc_calls import P1
from tests.faults.kills import R1, R1B, R21
from tests.faults.layouts import L1
from tests.faults.many_kills import K1
from tests.faults.mixed_run import M1
from tests.faults.nth_failures import R5
from tests.faults.overload import R23
from tests.faults.peers import R9, R10, R17, R18
from tests.faults.power_cuts import R2, R2B, R2C, R21B
from tests.faults.replica_disks import H5, H6
from tests.faults.replica_java import H11, H12
from tests.faults.replica_kills import H1, H2, H3, H4
from tests.faults.replica_networks import H7
from tests.faults.replica_peers import H8, H9
from tests.faults.scale import S1
from tests.faults.scarcity import R5B
from tests.faults.services import V1
from tests.faults.simulation import R22
from tests.faults.small_memory import R16
from tests.faults.soak import R12
from tests.faults.sweeps import B1
from tests.faults.switches import H10, H13
from tests.faults.tears import R3, R4
from tests.faults.tls_storm import S16H
from tests.faults.upgrades import U1, U2, U3
from tests.faults.wire_fuzz import W1
from tests.interop.sdk_against_java import J1
from tests.kit.campaign import Campaign

CAMPAIGNS: tuple[Campaign, ...] = (
    R1,
    R1B,
    R1E,
    R1F,
    R2,
    R2B,
    R2C,
    R3,
    R4,
    R5,
    R5B,
    R7,
    R8,
    R9,
    R10,
    R11,
    R12,
    R14,
    R14B,
    R15,
    R16,
    R17,
    R18,
    R20,
    R21,
    R21B,
    R22,
    R23,
    L1,
    S1,
    S16H,
    M1,
    A1,
    D1,
    Q1,
    W1,
    W2,
    W3,
    G1,
    P1,
    GC1,
    V1,
    B1,
    J1,
    K1,
    H1,
    H2,
    H3,
    H4,
    H5,
    H6,
    H7,
    H8,
    H9,
    H11,
    H12,
    H10,
    H13,
    H14,
    H15,
    F1,
    F1J,
    U1,
    U2,
    U3,
)
