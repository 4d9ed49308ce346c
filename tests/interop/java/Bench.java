import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.logbuffer.Header;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * What a real client does in a time, as a line of JSON. The first word says what.
 *
 *   publish CHANNEL STREAM, subscribe CHANNEL STREAM   so many messages by the driver of --aeron-dir
 *   echo                                               to a cluster whose service echoes, --window at once
 *   offer                                              to a cluster, --rate a second, each the time of its offer
 */
public final class Bench extends Client
{
    private final UnsafeBuffer message;
    private final long[] roundTripsNs = new long[1_000_000];
    private long answered;
    private long measured;
    private boolean isMeasuring;

    private Bench(final Options o)
    {
        super(o);
        message = new UnsafeBuffer(new byte[o.number("size", 100)]);
    }

    public static void main(final String[] args)
    {
        final Options o = new Options(args);
        final String what = o.words.get(0);
        if ("publish".equals(what) || "subscribe".equals(what))
        {
            medium(o, what);
            return;
        }
        try (Bench bench = new Bench(o))
        {
            bench.connect();
            if ("echo".equals(what))
            {
                bench.echo();
            }
            else
            {
                bench.offer();
            }
        }
    }

    private static void medium(final Options o, final String what)
    {
        final IdleStrategy idle = o.idle("client-idle").get();
        final int messages = o.number("messages", 1_000_000);
        final int stream = Integer.parseInt(o.words.get(2));
        final UnsafeBuffer message = new UnsafeBuffer(new byte[o.number("size", 100)]);
        final long[] got = new long[1];
        try (Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(o.text("aeron-dir", null))))
        {
            if ("publish".equals(what))
            {
                try (Publication publication = aeron.addExclusivePublication(o.words.get(1), stream))
                {
                    while (!publication.isConnected())
                    {
                        idle.idle();
                    }
                    final long beganNs = System.nanoTime(), cpuNs = cpuNs();
                    for (int i = 0; i < messages; i++)
                    {
                        while (publication.offer(message) < 0)
                        {
                            idle.idle();
                        }
                    }
                    say(messages, beganNs, cpuNs);
                    while (publication.isConnected())
                    {
                        idle.idle();
                    }
                }
                return;
            }
            try (Subscription subscription = aeron.addSubscription(o.words.get(1), stream))
            {
                System.out.println("ready");
                final FragmentAssembler counting = new FragmentAssembler((buffer, offset, length, header) -> got[0]++);
                while (got[0] == 0)
                {
                    idle.idle(subscription.poll(counting, 1));
                }
                final long beganNs = System.nanoTime(), cpuNs = cpuNs();
                while (got[0] < messages)
                {
                    idle.idle(subscription.poll(counting, 50));
                }
                say(messages, beganNs, cpuNs);
            }
        }
    }

    private static long cpuNs()
    {
        return ((com.sun.management.OperatingSystemMXBean)ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static void say(final long messages, final long beganNs, final long cpuNs)
    {
        System.out.printf("{\"messages\":%d,\"seconds\":%.3f,\"cpu_seconds\":%.3f}%n",
            messages, (System.nanoTime() - beganNs) / 1e9, (cpuNs() - cpuNs) / 1e9);
    }

    private void echo()
    {
        final int window = options.number("window", 1);
        final long warmNs = System.nanoTime() + options.duration("warmup", "2s");
        final long endNs = warmNs + options.duration("seconds", "8s");
        long sent = 0;
        long nowNs;
        while ((nowNs = System.nanoTime()) < endNs)
        {
            isMeasuring = nowNs > warmNs;
            int work = cluster.pollEgress();
            if (sent - answered < window)
            {
                message.putLong(0, nowNs);
                if (cluster.offer(message, 0, message.capacity()) > 0)
                {
                    sent++;
                    work++;
                }
            }
            idle.idle(work);
        }
        final int count = (int)Math.min(measured, roundTripsNs.length);
        Arrays.sort(roundTripsNs, 0, count);
        System.out.printf("{\"messages_per_s\":%d,\"p50_us\":%d,\"p99_us\":%d}%n",
            measured * 1_000_000_000L / (endNs - warmNs),
            count == 0 ? -1 : roundTripsNs[count / 2] / 1000, count == 0 ? -1 : roundTripsNs[count * 99 / 100] / 1000);
    }

    private void offer()
    {
        final long gapNs = TimeUnit.SECONDS.toNanos(1) / options.number("rate", 100);
        final long endNs = System.nanoTime() + options.duration("seconds", "8s");
        for (long dueNs = System.nanoTime(); dueNs < endNs; dueNs += gapNs)
        {
            while (System.nanoTime() < dueNs)
            {
                idle.idle(cluster.pollEgress());
            }
            final java.time.Instant now = java.time.Instant.now();
            message.putLong(0, TimeUnit.SECONDS.toNanos(now.getEpochSecond()) + now.getNano());
            while (cluster.offer(message, 0, message.capacity()) < 0)
            {
                idle.idle(cluster.pollEgress());
            }
        }
    }

    public void onMessage(
        final long clusterSessionId,
        final long timestamp,
        final DirectBuffer buffer,
        final int offset,
        final int length,
        final Header header)
    {
        answered++;
        if (isMeasuring)
        {
            roundTripsNs[(int)(measured++ % roundTripsNs.length)] = System.nanoTime() - buffer.getLong(offset);
        }
    }
}
