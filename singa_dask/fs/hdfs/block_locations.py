"""Block locations of HDFS files, requested from the web server of a NameNode.

hdfs-native does not provide block locations. Locations are only hints for the placement of work, so a missing answer is
not an error.
"""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

from singa_dask.fs.hdfs.hadoop_conf import ha_namenodes, name_service
from singa_dask.lazy import LazyModule

http_client, request = LazyModule("http.client"), LazyModule("urllib.request")

# default web ports of Hadoop 3 and Hadoop 2
WEB_PORTS = (9870, 50070)
# the public operation since Hadoop 3.2, and the private operation since Hadoop 2.0
OPERATIONS = ("GETFILEBLOCKLOCATIONS", "GET_BLOCK_LOCATIONS")
# seconds to connect, seconds to wait for an answer, and seconds until a silent address is tried again
CONNECT_WITHIN_S, ANSWER_WITHIN_S, SILENT_FOR_S = 1.0, 10.0, 600.0
# address -> value of time.monotonic() until which no request is sent to it
_SILENT_UNTIL: dict[str, float] = {}


def web_addresses(netloc: str, settings: Mapping[str, str]) -> list[str]:
    """Return candidate web addresses of the NameNode, or of all NameNodes if ``netloc`` is an HA name."""
    netloc = name_service(netloc, settings)
    scheme = "https" if settings.get("dfs.http.policy") == "HTTPS_ONLY" else "http"
    key = f"dfs.namenode.{scheme}-address"
    names = ha_namenodes(netloc, settings)
    known = [settings.get(f"{key}.{netloc}.{name}") for name in names] or [settings.get(key)]
    configured = [f"{scheme}://{address}" for address in known if address]
    host = urllib.parse.urlsplit(f"//{netloc}").hostname
    guessed = [f"http://{host}:{port}" for port in WEB_PORTS] if host and not names else []
    return configured or guessed


def block_locations(addresses: Iterable[str], path: str, length: int, user: str) -> list[dict[str, Any]]:
    """Return the block locations of a file from the first address that answers; else an empty list.

    An address that does not answer is ignored in this process for some minutes.

    Returns
    -------
    list of dict
        ``hosts`` (list of str), ``offset`` and ``length`` in bytes of each block.
    """
    # use no proxy, because NameNodes are inside the cluster
    opener = request.build_opener(request.ProxyHandler({}))
    for address in addresses:
        if not _answers(address):
            continue
        for operation in OPERATIONS:
            query = urllib.parse.urlencode({"op": operation, "offset": 0, "length": length, "user.name": user})
            url = f"{address.rstrip('/')}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
            try:
                with opener.open(url, timeout=ANSWER_WITHIN_S) as answer:
                    return _parse(json.load(answer))
            except urllib.error.HTTPError as error:
                # the server has answered, and may support the other operation
                error.close()
            except (OSError, ValueError, KeyError, http_client.HTTPException):
                _SILENT_UNTIL[address] = time.monotonic() + SILENT_FOR_S
                break
    return []


def _answers(address: str) -> bool:
    """Return whether a server listens at an address. A firewall may drop packets silently."""
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
