"""Block locations of HDFS files, requested from the NameNode's WebHDFS because hdfs-native does not provide them.

Locations are hints for the placement of work, so a missing answer is not an error.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["block_locations", "hadoop_settings", "web_addresses"]

# of Hadoop 3, and of Hadoop 2
WEB_PORTS = (9870, 50070)
# the public operation, since Hadoop 3.2, and the private one, since 2.0
OPERATIONS = ("GETFILEBLOCKLOCATIONS", "GET_BLOCK_LOCATIONS")


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


def web_addresses(netloc: str, settings: Mapping[str, str]) -> list[str]:
    """Return candidate web addresses of the NameNode, or of all NameNodes if ``netloc`` is an HA name."""
    netloc = netloc or urllib.parse.urlsplit(settings.get("fs.defaultFS", "")).netloc
    scheme = "https" if settings.get("dfs.http.policy") == "HTTPS_ONLY" else "http"
    key = f"dfs.namenode.{scheme}-address"
    names = [name.strip() for name in settings.get(f"dfs.ha.namenodes.{netloc}", "").split(",") if name.strip()]
    known = [settings.get(f"{key}.{netloc}.{name}") for name in names] or [settings.get(key)]
    found = [f"{scheme}://{address}" for address in known if address]
    host = urllib.parse.urlsplit(f"//{netloc}").hostname
    guessed = [f"http://{host}:{port}" for port in WEB_PORTS] if host and not names else []
    return found or guessed


def block_locations(
    addresses: Iterable[str], path: str, start: int, length: int, user: str, timeout_s: float
) -> list[dict[str, Any]]:
    """Request block locations from each address in turn; returns the first answer, or an empty list.

    Returns
    -------
    list of dict
        ``hosts`` (list of str), ``offset`` and ``length`` in bytes of each block that overlaps the range.
    """
    # a NameNode is not behind a proxy
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for address in addresses:
        for operation in OPERATIONS:
            query = urllib.parse.urlencode({"op": operation, "offset": start, "length": length, "user.name": user})
            url = f"{address.rstrip('/')}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
            try:
                with opener.open(url, timeout=timeout_s) as answer:
                    return _parse(json.load(answer))
            except urllib.error.HTTPError as error:
                # it may support the other operation
                error.close()
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                break
    return []


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
