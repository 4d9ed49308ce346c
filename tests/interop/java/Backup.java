import io.aeron.archive.Archive;
import io.aeron.archive.client.AeronArchive;
import io.aeron.cluster.ClusterBackup;
import io.aeron.cluster.ClusterBackupMediaDriver;
import io.aeron.driver.MediaDriver;
import java.io.File;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.agrona.ErrorHandler;

/** A real backup of the members: media driver, archive and backup in this process. Ends when it is told to. */
public final class Backup
{
    public static void main(final String[] args) throws Exception
    {
        final Options o = new Options(args);
        final File dir = new File(o.text("dir", "backup"));
        final int id = o.number("member-id", 1);
        final CountDownLatch stop = new CountDownLatch(1);
        final CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
        {
            stop.countDown();
            Node.await(stopped);
        }));
        final ErrorHandler onError = error -> System.err.println("backup: " + error);

        final MediaDriver.Context driver = Node.driver(o, "idle").errorHandler(onError);
        final Archive.Context archive = Node.archive(o, id, dir, driver, onError);
        final ClusterBackup.Context backup = new ClusterBackup.Context()
            .aeronDirectoryName(driver.aeronDirectoryName())
            .archiveContext(new AeronArchive.Context()
                .aeronDirectoryName(driver.aeronDirectoryName())
                .controlRequestChannel(archive.localControlChannel())
                .controlRequestStreamId(archive.localControlStreamId())
                .controlResponseChannel("aeron:ipc?term-length=64k"))
            .clusterArchiveContext(new AeronArchive.Context()
                .aeronDirectoryName(driver.aeronDirectoryName())
                .controlRequestChannel("aeron:udp?endpoint=" + o.endpoint(0, 1))
                .controlResponseChannel("aeron:udp?endpoint=" + o.text("host", "localhost") + ":0"))
            .sourceType(ClusterBackup.SourceType.valueOf(o.text("source-type", "ANY")))
            .clusterDir(new File(dir, "cluster"))
            .clusterId(o.number("cluster-id", 0))
            .clusterConsensusEndpoints(o.text("consensus-endpoints", IntStream.range(0, o.number("members", 1))
                .mapToObj(member -> o.endpoint(member, 3))
                .collect(Collectors.joining(","))))
            .consensusChannel("aeron:udp?endpoint=" + o.endpoint(id, 3))
            .catchupEndpoint(o.text("host", "localhost") + ":0")
            .clusterBackupResponseTimeoutNs(TimeUnit.SECONDS.toNanos(1))
            .clusterBackupProgressTimeoutNs(TimeUnit.SECONDS.toNanos(2))
            .clusterBackupCoolDownIntervalNs(TimeUnit.MILLISECONDS.toNanos(500))
            .idleStrategySupplier(o.idle("idle"))
            .errorHandler(onError)
            .terminationHook(stop::countDown);
        try (ClusterBackupMediaDriver running = ClusterBackupMediaDriver.launch(driver, archive, backup))
        {
            stop.await(o.number("max-seconds", 3600), TimeUnit.SECONDS);
        }
        finally
        {
            stopped.countDown();
        }
    }
}
