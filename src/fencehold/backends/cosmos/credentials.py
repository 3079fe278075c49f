"""A token of Microsoft Entra ID in place of the account key; azure-identity finds and renews it."""

from __future__ import annotations

import importlib.util

from azure.core.credentials_async import AsyncTokenCredential

from fencehold.model.errors import ConfigurationError

INSTALL_HINT = "pip install 'fencehold[entra]'"


def check_installed() -> None:
    if importlib.util.find_spec("azure.identity") is None:
        raise ConfigurationError("azure-identity is not installed.", hint=INSTALL_HINT, code="no_driver")


def token_credential() -> AsyncTokenCredential:
    """Return a new credential for one event loop; the caller closes it. Requests no token yet.

    Raises ConfigurationError (bad_credential) if the environment's settings for it are wrong.
    """
    check_installed()
    from azure.identity.aio import DefaultAzureCredential

    try:
        return DefaultAzureCredential()
    except ValueError as error:  # wrong in the environment: AZURE_TOKEN_CREDENTIALS, AZURE_AUTHORITY_HOST
        raise ConfigurationError(f"credential=default cannot work here: {error}", code="bad_credential") from None
