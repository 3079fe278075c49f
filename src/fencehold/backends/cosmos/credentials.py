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
    """A new one, for one event loop; whoever asked for it closes it. Asks nobody for a token yet."""
    check_installed()
    from azure.identity.aio import DefaultAzureCredential

    try:
        return DefaultAzureCredential()
    except ValueError as error:  # of the environment: AZURE_TOKEN_CREDENTIALS, AZURE_AUTHORITY_HOST
        raise ConfigurationError(f"credential=default cannot work here: {error}", code="bad_credential") from None
