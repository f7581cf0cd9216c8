"""Block locations of HDFS files, requested from the NameNode's WebHDFS because hdfs-native does not provide them.

Locations are hints for the placement of work, so a missing answer is not an error.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# of Hadoop 3, and of Hadoop 2
WEB_PORTS = (9870, 50070)
# the public operation, since Hadoop 3.2, and the private one, since 2.0
OPERATIONS = ("GETFILEBLOCKLOCATIONS", "GET_BLOCK_LOCATIONS")
# seconds: to connect, to answer, and until an address that did not answer is asked again
CONNECT_WITHIN_S, ANSWER_WITHIN_S, SILENT_FOR_S = 1.0, 10.0, 600.0
# by address, a value of time.monotonic
_SILENT_UNTIL: dict[str, float] = {}


def hadoop_settings(config_dir: str | None = None) -> dict[str, str]:
    """Return the settings in core-site.xml and hdfs-site.xml of a Hadoop configuration directory."""
    home = os.environ.get("HADOOP_HOME")
    directory = config_dir or os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop")
    settings: dict[str, str] = {}
    if not directory:
        return settings
    for name in ("core-site.xml", "hdfs-site.xml"):
        path = Path(directory) / name
        if path.exists():
            for each in ElementTree.parse(path).iter("property"):
                settings[each.findtext("name", "").strip()] = each.findtext("value", "").strip()
    return settings


def name_service(netloc: str, settings: Mapping[str, str]) -> str:
    """Return the host and port of a URL, or the HA name; those of ``fs.defaultFS`` if the URL has none."""
    return netloc or urllib.parse.urlsplit(settings.get("fs.defaultFS", "")).netloc


def ha_namenodes(service: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the NameNodes of an HA name; empty if it is none."""
    names = settings.get(f"dfs.ha.namenodes.{service}", "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def user_name() -> str:
    """Return the name of the user for HDFS. A container may run under a number without a name."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def web_addresses(netloc: str, settings: Mapping[str, str]) -> list[str]:
    """Return candidate web addresses of the NameNode, or of all NameNodes if ``netloc`` is an HA name."""
    netloc = name_service(netloc, settings)
    scheme = "https" if settings.get("dfs.http.policy") == "HTTPS_ONLY" else "http"
    key = f"dfs.namenode.{scheme}-address"
    names = ha_namenodes(netloc, settings)
    known = [settings.get(f"{key}.{netloc}.{name}") for name in names] or [settings.get(key)]
    found = [f"{scheme}://{address}" for address in known if address]
    host = urllib.parse.urlsplit(f"//{netloc}").hostname
    guessed = [f"http://{host}:{port}" for port in WEB_PORTS] if host and not names else []
    return found or guessed


def block_locations(addresses: Iterable[str], path: str, start: int, length: int, user: str) -> list[dict[str, Any]]:
    """Request block locations from each address in turn; returns the first answer, or an empty list.

    An address that did not answer is not asked again in this process for some minutes.

    Returns
    -------
    list of dict
        ``hosts`` (list of str), ``offset`` and ``length`` in bytes of each block that overlaps the range.
    """
    # a NameNode is not behind a proxy
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for address in addresses:
        if not _answers(address):
            continue
        for operation in OPERATIONS:
            query = urllib.parse.urlencode({"op": operation, "offset": start, "length": length, "user.name": user})
            url = f"{address.rstrip('/')}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
            try:
                with opener.open(url, timeout=ANSWER_WITHIN_S) as answer:
                    return _parse(json.load(answer))
            except urllib.error.HTTPError as error:
                # it may support the other operation
                error.close()
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                _SILENT_UNTIL[address] = time.monotonic() + SILENT_FOR_S
                break
    return []


def _answers(address: str) -> bool:
    """Return whether something listens at an address; a firewall may drop packets without a word."""
    if time.monotonic() < _SILENT_UNTIL.get(address, 0.0):
        return False
    parts = urllib.parse.urlsplit(address)
    try:
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
        socket.create_connection((parts.hostname or "", port), CONNECT_WITHIN_S).close()
    except (OSError, ValueError):
        _SILENT_UNTIL[address] = time.monotonic() + SILENT_FOR_S
        return False
    return True


def _parse(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "BlockLocations" in answer:
        return [
            {"hosts": list(block["hosts"]), "offset": int(block["offset"]), "length": int(block["length"])}
            for block in answer["BlockLocations"]["BlockLocation"]
        ]
    return [
        {
            "hosts": [location["hostName"] for location in block["locations"]],
            "offset": int(block["startOffset"]),
            "length": int(block["block"]["numBytes"]),
        }
        for block in answer["LocatedBlocks"]["locatedBlocks"]
    ]
