import io.aeron.cluster.client.AeronCluster;
import io.aeron.cluster.client.EgressListener;
import io.aeron.cluster.codecs.EventCode;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.exceptions.AeronException;
import io.aeron.logbuffer.Header;
import io.aeron.security.CredentialsSupplier;
import io.aeron.security.NullCredentialsSupplier;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.IdleStrategy;

/** A real AeronCluster client with a media driver of its own, for {@link Workload}. */
class Client implements EgressListener, AutoCloseable
{
    final Options options;
    final IdleStrategy idle;
    private final MediaDriver driver;
    AeronCluster cluster;
    long newLeaders;
    long connects;

    Client(final Options options)
    {
        this.options = options;
        idle = options.idle("client-idle").get();
        driver = MediaDriver.launch(Node.driver(options, "client-idle").threadingMode(ThreadingMode.SHARED));
    }

    /** Open a new session, trying again until there is a leader or --connect-timeout is over. */
    void connect()
    {
        final long deadlineNs = System.nanoTime() + options.duration("connect-timeout", "60s");
        while (true)
        {
            try
            {
                cluster = AeronCluster.connect(context());
                connects++;
                return;
            }
            catch (final AeronException ex)
            {
                if (System.nanoTime() > deadlineNs)
                {
                    throw ex;
                }
            }
        }
    }

    public void close()
    {
        CloseHelper.closeAll(cluster, driver);
    }

    public void onMessage(
        final long clusterSessionId,
        final long timestamp,
        final DirectBuffer buffer,
        final int offset,
        final int length,
        final Header header)
    {
    }

    public void onSessionEvent(
        final long correlationId,
        final long clusterSessionId,
        final long leadershipTermId,
        final int leaderMemberId,
        final EventCode code,
        final String detail)
    {
        if (code == EventCode.ERROR || code == EventCode.AUTHENTICATION_REJECTED)
        {
            System.err.println("session event: " + code + " " + detail);
        }
    }

    public void onNewLeader(
        final long clusterSessionId, final long leadershipTermId, final int leaderMemberId, final String endpoints)
    {
        newLeaders++;
    }

    private AeronCluster.Context context()
    {
        final AeronCluster.Context context = new AeronCluster.Context()
            .aeronDirectoryName(driver.aeronDirectoryName())
            .ingressChannel(options.text("ingress-channel", "aeron:udp"))
            .ingressEndpoints(options.ingressEndpoints())
            .egressChannel(options.text("egress-channel", "aeron:udp?endpoint=" + options.text("host", "localhost") + ":0"))
            .egressListener(this)
            .credentialsSupplier(options.has("word") ? new Word(options.text("word", "")) : new NullCredentialsSupplier())
            .idleStrategy(idle)
            .messageTimeoutNs(TimeUnit.SECONDS.toNanos(5));
        try
        {
            // The default, twice the cluster's heartbeat time-out, could end a session that is being timed.
            context.newLeaderTimeoutNs(TimeUnit.SECONDS.toNanos(60));
        }
        catch (final NoSuchMethodError ex)
        {
            // So it is before 1.47: a client waits for its next leader without an end.
        }
        return context;
    }

    /** Says nothing by itself, and the word when it is asked for one. */
    private static final class Word implements CredentialsSupplier
    {
        private final byte[] word;

        Word(final String word)
        {
            this.word = word.getBytes(StandardCharsets.US_ASCII);
        }

        public byte[] encodedCredentials()
        {
            return NullCredentialsSupplier.NULL_CREDENTIAL;
        }

        public byte[] onChallenge(final byte[] challenge)
        {
            return word;
        }
    }
}
