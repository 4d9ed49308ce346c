"""Clusters over Aeron's own medium. Of a real one, while it runs, the log is read, and sessions are ours:

    AeronLog ── AeronMember ── BackupQuery, bounded replay ──▶ consensus and archive endpoints
    AeronCluster ── ingress publication, egress subscription ──▶ ingress endpoints
    AeronRecording ── replay ──▶ the archive of anybody
    LaneWriter ── reads the one, sends by the other: the rows of a task, each once

Nothing of such a cluster is changed, and nothing is installed on its members. And clients of Aeron's have
sessions of our members:

    AeronIngress ── AeronClients ── AeronClientLink ──▶ a member's ClientPort

Its recordings are replayed to them, and to backups of Aeron's:

    ArchiveServer ── ArchiveConductor ── ControlSession, ReplaySession ◀── the member's files

Or one of our members is among Java's, and follows their leader:

    AeronLinks ── consensus messages ──▶ consensus endpoints      ◀── FollowedLog, ReplicatedLog
"""
