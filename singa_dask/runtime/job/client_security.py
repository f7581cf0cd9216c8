"""TLS certificates for a client that runs in a Dask process."""

from __future__ import annotations

import copy

from distributed.security import Security


def as_client(security: Security, role: str) -> Security:
    """Return a `Security` for a client that runs in a Dask process.

    Parameters
    ----------
    role : {"scheduler", "worker"}
        Role of the Dask process. If no client certificate is configured, the client uses the certificate of this role.
    """
    own = security.get_tls_config_for_role(role)
    if security.get_tls_config_for_role("client")["cert"] or not own["cert"]:
        return security
    own_client = copy.copy(security)
    for name in ("cert", "key"):
        setattr(own_client, f"tls_client_{name}", own[name])
    return own_client
