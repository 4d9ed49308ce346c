"""The source over the directories of several members: whichever fails, the micro-batch is the same."""

import shutil

import pytest

from cluster.errors import NotAClusterDirectory
from spark_connector.data_source import ClusterDataSource
from tests.spark.logs import open_log
from tests.spark.readers import joined, micro_batches, payloads, stream


@pytest.fixture
def members(tmp_path):
    logs = [open_log(tmp_path / name)[0] for name in ("0", "1")]
    yield logs
    for log in logs:
        if log.directory.exists():
            log.stop()


def over(logs, **options):
    return stream(logs[0], clusterDir=",".join(str(log.directory) for log in logs), **options)


def test_a_micro_batch_goes_on_over_the_next_directory_and_says_why(members, capsys):
    sent = joined([log.lines(1, 0, 10) for log in members][:1])
    reader = over(members, maxEntriesPerTrigger="6")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    planned = reader.partitions(start, end)
    shutil.rmtree(members[0].directory)

    assert payloads(reader, planned) == sent[:4]  # after the term and the session
    assert payloads(over(members), over(members).partitions(start, end)) == sent[:4]
    assert f"{members[0].directory} cannot be read, another directory is: " in capsys.readouterr().err
    sent += members[1].lines(1, 10, 10)
    assert joined(micro_batches(over(members))) == sent


def test_a_list_is_refused_only_where_none_is_a_members_directory(members, tmp_path):
    paths = [str(tmp_path / "away"), str(members[1].directory)]
    assert "payload BINARY" in ClusterDataSource({"clusterDir": ", ".join(paths)}).schema()
    paths[1] = str(tmp_path / "lost")
    with pytest.raises(NotAClusterDirectory, match=r"/away: no such directory; .*/lost: no such directory"):
        ClusterDataSource({"clusterDir": ",".join(paths)}).schema()
