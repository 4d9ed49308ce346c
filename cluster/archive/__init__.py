"""A member's files: the archive with its recordings, and what the cluster directory holds.

Read ``recording.py`` first (the log as a file: append, sync, cut; ``stored_recording.py``: how it is read),
then ``archive.py`` (which recordings there are). ``files.py`` is the only door to the disk. Beside them

    append_and_sync.py          how a recording is written, proven and synced; file_calls.py: by which calls
    recording_end.py            where a recording ends after a crash, and its torn tail is cut
    recording_damage.py         where one is damaged, and what is set aside then
    recording_repair.py         damaged frames are written again, in their place
    recording_verification.py   whether recordings are as the catalog says (Aeron's verify)
    sync_proof.py               what the last sync has made durable; proof_slots.py: the slots of its file
    frame_checksum.py           by which checksum the frames of a recording are verified
    frame_walk.py               the frames of a recording, one run after another
    catalog_file.py, catalog_checksum.py, catalog_repair.py, snapshot_archive.py, archive_tool.py
    recording_log.py, recording_log_tool.py, node_state_file.py, promises_file.py, mark_files.py,
    identity_file.py, closed_file.py
                                the files of the cluster directory

The bytes are Aeron's, laid out in ``cluster/protocol``; what is ours beside them is the lock (``*.lock``),
the sync proof (``recording-*.proof``) and the segment prepared ahead (``recording-*.next``),
which Aeron's tools ignore. The folder decides nothing about consensus and never imports it; it reads no
clock: whoever calls hands in the time.
"""
