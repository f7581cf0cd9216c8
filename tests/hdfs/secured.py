"""A real HDFS in secure mode: Kerberos, block access tokens, and what is on the wire encrypted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hdfs.cluster import HOSTS, JVM, MiniHdfs
from tests.hdfs.kdc import REALM, Kdc

__all__ = ["PRINCIPALS", "SecuredHdfs"]

# the user alice may write anywhere, bob only where he is let
PRINCIPALS = ("nn/localhost", "dn/localhost", "HTTP/localhost", "alice", "bob")


class SecuredHdfs(MiniHdfs):
    """An HDFS whose servers and users authenticate by a KDC.

    Parameters
    ----------
    directory : path
    kdc : Kdc
        Has `PRINCIPALS`.
    protection : str
        Of RPCs and of the transfer of data: ``"authentication"``, ``"integrity"`` or ``"privacy"``.
    settings : mapping
        More settings of Hadoop.
    hosts : sequence of str
    """

    def __init__(
        self,
        directory: Path,
        kdc: Kdc,
        protection: str,
        settings: Mapping[str, Any] | None = None,
        hosts: Sequence[str] = HOSTS,
    ) -> None:
        self._kdc, self._more = kdc, {"hadoop.rpc.protection": protection, **(settings or {})}
        if "dfs.encrypt.data.transfer" not in self._more:
            self._more["dfs.data.transfer.protection"] = protection
        self.jvm = (*JVM, f"-Djava.security.krb5.conf={kdc.config}")
        super().__init__(directory, hosts=hosts)

    def _settings(self, addresses: Sequence[str], replication: int) -> dict[str, Any]:
        principals = {
            "dfs.namenode.kerberos.principal": "nn/localhost",
            "dfs.datanode.kerberos.principal": "dn/localhost",
            "dfs.web.authentication.kerberos.principal": "HTTP/localhost",
        }
        files = {
            "dfs.namenode.keytab.file": "nn",
            "dfs.datanode.keytab.file": "dn",
            "dfs.web.authentication.kerberos.keytab": "HTTP",
        }
        return {
            **super()._settings(addresses, replication),
            **{name: f"{principal}@{REALM}" for name, principal in principals.items()},
            **{name: self._kdc.keytab(user) for name, user in files.items()},
            "hadoop.security.authentication": "kerberos",
            "hadoop.security.authorization": "true",
            "hadoop.user.group.static.mapping.overrides": "alice=admins;bob=;nn=;dn=",
            "dfs.permissions.superusergroup": "admins",
            "dfs.block.access.token.enable": "true",
            "ignore.secure.ports.for.testing": "true",
            **self._more,
        }
