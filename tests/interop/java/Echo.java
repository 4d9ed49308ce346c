import io.aeron.logbuffer.Header;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Sends numbers, one after the other, to a service that echoes; every tenth in many fragments. Goes on when a number is
 * answered, and sends it again when there is a new leader and it was not. Says "half" when half of them are answered.
 */
public final class Echo extends Client
{
    private static final long AGAIN_NS = TimeUnit.SECONDS.toNanos(2);
    private final UnsafeBuffer message = new UnsafeBuffer(new byte[20_000]);
    private long awaited;
    private int awaitedLength;
    private boolean isAnswered;
    private long wrong;

    private Echo(final Options o)
    {
        super(o);
    }

    public static void main(final String[] args)
    {
        final Options o = new Options(args);
        final int messages = o.number("messages", 1000);
        try (Echo echo = new Echo(o))
        {
            echo.connect();
            long sent = 0;
            for (int number = 0; number < messages; number++)
            {
                sent += echo.await(number, number % 10 == 9 ? 20_000 : 8);
                if (number == messages / 2)
                {
                    System.out.println("half");
                }
            }
            System.out.printf(
                "{\"answered\":%d,\"sent\":%d,\"wrong\":%d,\"connects\":%d,\"newLeaders\":%d,\"session\":%d}%n",
                messages, sent, echo.wrong, echo.connects, echo.newLeaders, echo.cluster.clusterSessionId());
        }
    }

    /** How often the number was sent until its answer came. */
    private long await(final long number, final int length)
    {
        awaited = number;
        awaitedLength = length;
        isAnswered = false;
        message.putLong(0, number);
        long sent = 0;
        long againNs = System.nanoTime();
        while (!isAnswered)
        {
            if (cluster.isClosed())
            {
                throw new IllegalStateException("closed at " + number);
            }
            if (System.nanoTime() >= againNs && cluster.offer(message, 0, length) > 0)
            {
                sent++;
                againNs = System.nanoTime() + AGAIN_NS;
            }
            idle.idle(cluster.pollEgress());
        }
        return sent;
    }

    public void onMessage(
        final long clusterSessionId,
        final long timestamp,
        final DirectBuffer buffer,
        final int offset,
        final int length,
        final Header header)
    {
        final long number = buffer.getLong(offset);
        if (number == awaited && length == awaitedLength)
        {
            isAnswered = true;
        }
        else if (number > awaited || length != (number % 10 == 9 ? 20_000 : 8))
        {
            wrong++;
        }
    }
}
