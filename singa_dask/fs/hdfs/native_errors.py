"""Convert errors of hdfs-native to `OSError`s that name the cause and the URL."""

from __future__ import annotations

import errno
import re

from singa_dask.fs.client_errors import with_errno

# message of hdfs-native when the NameNode closes the connection, e.g. because the client does not use Kerberos
REFUSED = "RPC listener disconnected"
NEEDS_KERBEROS = (
    "If it requires Kerberos, set HADOOP_CONF_DIR to the cluster's configuration, or hadoop.security.authentication: "
    "kerberos in storage_options."
)

# Java exceptions of the NameNode that hdfs-native does not convert
KINDS = (
    ("AccessControlException", PermissionError, errno.EACCES),
    ("PathIsNotEmptyDirectoryException", OSError, errno.ENOTEMPTY),
    ("FileAlreadyExistsException", FileExistsError, errno.EEXIST),
    ("FileNotFoundException", FileNotFoundError, errno.ENOENT),
    ("InvalidArgument", OSError, errno.EINVAL),
    ("IllegalArgumentException", OSError, errno.EINVAL),
    ("InvalidPathException", OSError, errno.EINVAL),
    ("PathComponentTooLongException", OSError, errno.ENAMETOOLONG),
    ("ParentNotDirectoryException", NotADirectoryError, errno.ENOTDIR),
    ("QuotaExceededException", OSError, errno.EDQUOT),
    ("QuotaByStorageTypeExceededException", OSError, errno.EDQUOT),
    ("MaxDirectoryItemsExceededException", OSError, errno.EDQUOT),
    # a file cannot be renamed to a directory
    ("must both be directories", IsADirectoryError, errno.EISDIR),
    ("SecretManager$InvalidToken", PermissionError, errno.EACCES),
)
# names of errors for files with erasure coding
CODES = ("ErasureCodingError", "UnsupportedErasureCodingPolicy")
NOT_RESTORED = (
    ". DataNodes of this file do not answer, and its erasure coding cannot restore their data. hdfs-native restores "
    "Reed-Solomon codes while enough DataNodes answer, but not XOR codes. Start the DataNodes, or, if Hadoop wrote the "
    "file, read it with client: webhdfs."
)
GSSAPI = re.compile(
    r'GSSAPIError\(.*?, "(?:[^"]*\.? ?Minor code may provide more information|[^":]*): ([^"]*)', re.DOTALL
)
# prefix of a message that goes on with details of all DataNodes
DATANODES_FAILED = "All DataNodes failed"
GSSAPI_LIBRARY = "libgssapi_krb5.so.2"
# messages after which a retry may succeed, because the KDC did not answer
KDC_SILENT = ("Cannot contact any KDC", "Resource temporarily unavailable")


def os_error(error: BaseException, where: str) -> OSError:
    """Convert an error of hdfs-native to an `OSError` whose text begins with ``where``."""
    text = str(error)
    said = _said(text)
    if isinstance(error, OSError):
        kind: type[OSError] = type(error)
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else error.errno or errno.EIO
        return with_errno(kind, number, f"{where}: {said}")
    if match := GSSAPI.search(text):
        text = f"{where}: Kerberos: {match[1]}."
        if any(silence in match[1] for silence in KDC_SILENT):
            return with_errno(OSError, errno.EIO, text)
        return with_errno(PermissionError, errno.EACCES, text)
    if DATANODES_FAILED in text:
        places = sorted(set(re.findall(r'ip_addr: \\*"([^"\\]*).*?xfer_port: (\d+)', text)))
        addresses = ", ".join(":".join(place) for place in places)
        return with_errno(OSError, errno.EIO, f"{where}: {DATANODES_FAILED}: {addresses}.")
    if any(name in text for name in CODES):
        return with_errno(OSError, errno.EIO, f"{where}: {said}{NOT_RESTORED}")
    for name, kind, number in KINDS:
        if name in text:
            return with_errno(kind, number, f"{where}: {said}")
    return with_errno(OSError, errno.EIO, f"{where}: {said}")


def _said(text: str) -> str:
    """Return the text of an error of hdfs-native as ``NAME: TEXT``, without a Java stack.

    hdfs-native writes it as ``RPCError("org.apache.NAME", "TEXT")``.
    """
    quoted = [re.sub(r"\\(.)", _unescaped, each) for each in re.findall(r'"((?:[^"\\]|\\.)*)"', text)]
    kind = re.match(r"(\w+)\(", text)
    if kind is None or len(quoted) != 1 + (kind[1] == "RPCError"):
        return re.split(r"\\n|\n", text)[0]
    name, message = kind[1], quoted[-1].partition("\n")[0]
    return f"{quoted[0].rpartition('.')[2] if name == 'RPCError' else name}: {message}"


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1])
