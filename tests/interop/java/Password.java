import io.aeron.security.Authenticator;
import io.aeron.security.AuthenticatorSupplier;
import io.aeron.security.SessionProxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Lets in who shows {@code user:secret}; who connects with nothing is challenged. */
public final class Password implements AuthenticatorSupplier, Authenticator
{
    private static final byte[] EXPECTED = "user:secret".getBytes(StandardCharsets.US_ASCII);
    private byte[] shown = {};

    public Authenticator get()
    {
        return new Password();
    }

    public void onConnectRequest(final long sessionId, final byte[] encodedCredentials, final long nowMs)
    {
        shown = encodedCredentials;
    }

    public void onChallengeResponse(final long sessionId, final byte[] encodedCredentials, final long nowMs)
    {
        shown = encodedCredentials;
    }

    public void onConnectedSession(final SessionProxy session, final long nowMs)
    {
        if (0 == shown.length)
        {
            session.challenge("who?".getBytes(StandardCharsets.US_ASCII));
        }
        else
        {
            judge(session);
        }
    }

    public void onChallengedSession(final SessionProxy session, final long nowMs)
    {
        if (0 < shown.length)
        {
            judge(session);
        }
    }

    private void judge(final SessionProxy session)
    {
        if (Arrays.equals(EXPECTED, shown))
        {
            session.authenticate(EXPECTED);
        }
        else
        {
            session.reject();
        }
    }
}
