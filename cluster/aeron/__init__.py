"""A real Aeron Cluster, while it runs, over Aeron's own medium: its log is read, and its sessions are ours.

    AeronLog ── AeronMember ── BackupQuery, bounded replay ──▶ consensus and archive endpoints
    AeronCluster ── ingress publication, egress subscription ──▶ ingress endpoints
    AeronRecording ── replay ──▶ the archive of anybody

Nothing of such a cluster is changed, and nothing is installed on its members.
"""
