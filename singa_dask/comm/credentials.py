"""Certificates with which a Dask scheduler or worker is a client of its cluster, too."""

from __future__ import annotations

import copy

from distributed.security import Security

__all__ = ["as_client"]


def as_client(security: Security, role: str) -> Security:
    """Return the security of a Dask process for a client in it; gateways give it no client's certificate.

    Parameters
    ----------
    security : distributed.Security
    role : {"scheduler", "worker"}
        Of the process, whose own certificate is used where there is none for clients.
    """
    own = security.get_tls_config_for_role(role)
    if security.get_tls_config_for_role("client")["cert"] or not own["cert"]:
        return security
    made = copy.copy(security)
    for name in ("cert", "key"):
        setattr(made, f"tls_client_{name}", own[name])
    return made
