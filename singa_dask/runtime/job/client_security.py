"""The TLS certificates of a Dask process, for a client in it."""

from __future__ import annotations

import copy

from distributed.security import Security


def as_client(security: Security, role: str) -> Security:
    """Return the security of a Dask process for a client in it, which may lack a client's certificate.

    Parameters
    ----------
    role : {"scheduler", "worker"}
        Of the process, whose own certificate is used where there is none for clients.
    """
    own = security.get_tls_config_for_role(role)
    if security.get_tls_config_for_role("client")["cert"] or not own["cert"]:
        return security
    own_client = copy.copy(security)
    for name in ("cert", "key"):
        setattr(own_client, f"tls_client_{name}", own[name])
    return own_client
