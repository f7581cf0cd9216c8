"""Hadoop's configuration of a cluster: settings, NameNodes, and the user."""

from __future__ import annotations

import getpass
import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from singa_dask.lazy import LazyModule

ElementTree = LazyModule("xml.etree.ElementTree")


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
            for element in ElementTree.parse(path).iter("property"):
                settings[element.findtext("name", "").strip()] = element.findtext("value", "").strip()
    return settings


def name_service(netloc: str, settings: Mapping[str, str]) -> str:
    """Return host and port, or the HA name, of a URL; by default of ``fs.defaultFS``."""
    return netloc or urllib.parse.urlsplit(settings.get("fs.defaultFS", "")).netloc


def ha_namenodes(service: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the NameNodes of an HA name; empty for any other name."""
    names = settings.get(f"dfs.ha.namenodes.{service}", "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def user_name() -> str:
    """Return the user name for HDFS, or the user id in a container without user names."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
