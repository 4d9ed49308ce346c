"""A real Aeron Cluster, while it runs, over Aeron's own medium: its log is read, and its sessions are ours.

    AeronLog ── AeronMember ── BackupQuery, bounded replay ──▶ consensus and archive endpoints
    AeronCluster ── ingress publication, egress subscription ──▶ ingress endpoints

Nothing of such a cluster is changed, and nothing is installed on its members.
"""
