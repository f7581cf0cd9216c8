"""A Kerberos KDC on this machine, of a realm of its own, loopback only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from socket import create_connection

from tests.hdfs.jars import Missing
from tests.ports import free_port
from tests.runtime.processes import TIMEOUT_S, wait_until

__all__ = ["REALM", "Kdc"]

REALM = "SINGA.TEST"
PACKAGES = {"krb5kdc": "krb5-kdc", "kdb5_util": "krb5-kdc", "kadmin.local": "krb5-admin-server", "kinit": "krb5-user"}
# Debian's are in /usr/sbin, which a user may not have on PATH
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
KRB5_CONF = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
clockskew = 1
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
KDC_CONF = """[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  supported_enctypes = aes256-cts:normal
  max_incarnation = 1d
  max_renewable_incarnation = 1d
}}
[logging]
default = FILE:{folder}/kdc.log
"""


class Kdc:
    """A KDC with principals and a keytab for each; use it in a ``with`` statement.

    Parameters
    ----------
    folder : path
        Is made.
    principals : sequence of str
        Without the realm. The keytab of ``nn/localhost`` is ``nn.keytab`` in the folder.

    Attributes
    ----------
    config : path
        The file for ``KRB5_CONFIG``.
    """

    def __init__(self, folder: Path, principals: Sequence[str]) -> None:
        for program, package in PACKAGES.items():
            if shutil.which(program, path=PATH) is None:
                raise Missing(f"no {program} (Debian: apt-get install {package})")
        folder.mkdir()
        self.folder, self.config, self._port = folder, folder / "krb5.conf", free_port()
        names = {"realm": REALM, "port": self._port, "folder": folder}
        self.config.write_text(KRB5_CONF.format(**names))
        (folder / "kdc.conf").write_text(KDC_CONF.format(**names))
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "no secret")
        lines = [f"addprinc -randkey {each}" for each in principals]
        lines += [f"ktadd -k {self.keytab(each)} {each}" for each in principals]
        self.run("kadmin.local", text="\n".join(lines))

    def keytab(self, principal: str) -> Path:
        """Return the file with the keys of a principal."""
        return self.folder / f"{principal.partition('/')[0]}.keytab"

    def __enter__(self) -> Kdc:
        self.process = subprocess.Popen(["krb5kdc", "-n"], env=self.environment(), stdout=subprocess.DEVNULL)
        wait_until(self._listens, "the KDC listens", TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def kinit(self, principal: str, cache: Path, *options: str) -> None:
        """Write a ticket into a file, as a user does with ``kinit``."""
        self.run("kinit", *options, "-c", str(cache), "-kt", str(self.keytab(principal)), principal)

    def run(self, *command: str, text: str = "") -> str:
        """Run a program of Kerberos; return what it writes."""
        done = subprocess.run(command, env=self.environment(), input=text, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def _listens(self) -> bool:
        assert self.process.poll() is None, (self.folder / "kdc.log").read_text()
        with suppress(OSError):
            create_connection(("127.0.0.1", self._port), 1).close()
            return True
        return False

    def environment(self) -> dict[str, str]:
        profile = self.folder / "kdc.conf"
        return {**os.environ, "PATH": PATH, "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(profile)}
