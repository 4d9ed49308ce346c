"""Numbers of the enumerations, as a literal table: they are on the wire and in counters."""

from enum import IntEnum

from cluster.protocol import enums

TABLE = {
    "EventCode": "OK ERROR REDIRECT AUTHENTICATION_REJECTED CLOSED",
    "CloseReason": "CLIENT_ACTION SERVICE_ACTION TIMEOUT",
    "ClusterAction": "SUSPEND RESUME SNAPSHOT",
    "SnapshotMark": "BEGIN SECTION END",
    "ChangeType": "JOIN QUIT",
    "ClusterTimeUnit": "MILLIS MICROS NANOS",
    "AdminRequestType": "SNAPSHOT",
    "AdminResponseCode": "OK ERROR UNAUTHORISED_ACCESS",
    "ClusterActionFlags": "DEFAULT STANDBY_SNAPSHOT",
    "AppendPositionFlags": "NONE CATCHUP",
    "ClusterComponentType": "UNKNOWN CONSENSUS_MODULE CONTAINER BACKUP STANDBY",
    "RecordingState": "INVALID VALID DELETED",
    "RecordingLogEntryType": "TERM SNAPSHOT STANDBY_SNAPSHOT",
    "ConsensusModuleState": "INIT ACTIVE SUSPENDED SNAPSHOT QUITTING TERMINATING CLOSED",
    "Role": "FOLLOWER CANDIDATE LEADER",
    "RefusedCertificate": "NONE THEIRS OURS",
    "ClusterControlToggle": "INACTIVE NEUTRAL SUSPEND RESUME SNAPSHOT SHUTDOWN ABORT STANDBY_SNAPSHOT",
    "NodeControlToggle": "INACTIVE NEUTRAL REPLICATE_STANDBY_SNAPSHOT VALIDATE_RECORDING_LOG",
    "ElectionState": "INIT CANVASS NOMINATE CANDIDATE_BALLOT FOLLOWER_BALLOT LEADER_LOG_REPLICATION "
    "LEADER_REPLAY LEADER_INIT LEADER_READY FOLLOWER_LOG_REPLICATION FOLLOWER_REPLAY "
    "FOLLOWER_CATCHUP_INIT FOLLOWER_CATCHUP_AWAIT FOLLOWER_CATCHUP FOLLOWER_LOG_INIT "
    "FOLLOWER_LOG_AWAIT FOLLOWER_READY CLOSED",
    "ClusterBackupState": "BACKUP_QUERY SNAPSHOT_RETRIEVE LIVE_LOG_RECORD LIVE_LOG_REPLAY "
    "UPDATE_RECORDING_LOG BACKING_UP RESET_BACKUP CLOSED",
}


def test_every_enumeration_counts_from_zero_in_this_order():
    for name, members in TABLE.items():
        table = {member: number for number, member in enumerate(members.split())}
        members_of = getattr(enums, name).__members__  # an iteration leaves out a flag's zero
        assert {member: value.value for member, value in members_of.items()} == table, name


def test_counter_states():
    assert {state.name: state.value for state in enums.CounterState} == {
        "RECLAIMED": -1,
        "UNUSED": 0,
        "ALLOCATED": 1,
    }


def test_the_codes_of_an_offer_are_aerons():
    assert {code.name: code.value for code in enums.Offer} == {
        "NOT_CONNECTED": -1,
        "BACK_PRESSURED": -2,
        "ADMIN_ACTION": -3,
        "CLOSED": -4,
        "MAX_POSITION_EXCEEDED": -5,
    }


def test_no_enumeration_is_missing_from_the_table():
    declared = {
        name
        for name, value in vars(enums).items()
        if isinstance(value, type) and issubclass(value, IntEnum) and value is not IntEnum
    }

    assert declared - {"ModuleState", "CounterState", "Offer"} <= set(TABLE)


def test_units_a_second():
    assert [unit.per_second for unit in enums.ClusterTimeUnit] == [1_000, 1_000_000, 1_000_000_000]
