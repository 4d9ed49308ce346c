"""A member's ``Security`` as its configuration names it."""

from typing import Protocol

from cluster.consensus.authentication import (
    AllowAllButAdmin,
    Authenticator,
    AuthorisationService,
    DefaultAuthenticator,
    OnAdministered,
    OnRefused,
    Security,
)
from cluster.errors import ConfigurationError
from cluster.security.authenticators import (
    CertificateVerifier,
    PasswordVerifier,
    TokenVerifier,
    VerifyingAuthenticator,
)
from cluster.security.rights import NoRights, RightsFile
from cluster.security.user_classes import (
    GuardedAuthenticator,
    GuardedAuthorisation,
    OnException,
    is_class_name,
    make,
)

NAMES = ("none", "token", "password", "certificate")


class SecurityKeys(Protocol):
    """The keys of a configuration that are read here."""

    @property
    def authenticator(self) -> str: ...

    @property
    def authenticator_file(self) -> str: ...

    @property
    def authorisation(self) -> str: ...


def load_security(
    keys: SecurityKeys,
    on_error: OnException,
    on_refused: OnRefused,
    on_administered: OnAdministered = lambda *_: None,
) -> Security:
    """``on_error`` hears of files that have become wrong, and of what a user's class raises.

    Raises ConfigurationError that names the key.
    """
    authorisation = _authorisation(keys, on_error)
    return Security(_authenticator(keys, on_error), authorisation, on_refused, on_administered)


def _authenticator(keys: SecurityKeys, on_error: OnException) -> Authenticator:
    name, path = keys.authenticator, keys.authenticator_file
    if name in ("token", "password") and not path:
        raise ConfigurationError(f'authenticator = "{name}": set authenticator_file, the principals')
    match name:
        case "none":
            return DefaultAuthenticator()
        case "token":
            return VerifyingAuthenticator(TokenVerifier(path, on_error))
        case "password":
            return VerifyingAuthenticator(PasswordVerifier(path, on_error))
        case "certificate":
            return VerifyingAuthenticator(CertificateVerifier())
    if not is_class_name(name):
        raise ConfigurationError(f'authenticator = "{name}": expected {", ".join(NAMES)} or module:ClassName')
    return GuardedAuthenticator(make("authenticator", name, GuardedAuthenticator.METHODS), on_error)


def _authorisation(keys: SecurityKeys, on_error: OnException) -> AuthorisationService:
    name = keys.authorisation
    if not name:
        return AllowAllButAdmin() if keys.authenticator == "none" else NoRights()
    if is_class_name(name):
        return GuardedAuthorisation(make("authorisation", name, GuardedAuthorisation.METHODS), on_error)
    return RightsFile(name, on_error)
