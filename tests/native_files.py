"""Split files in gpuqs's own format, and assemble them with a correct checksum."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any


def taken_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header, and the arrays with their padding."""
    n_header = struct.unpack_from("<I", data, 12)[0]
    start = -(-(32 + n_header) // 64) * 64
    return json.loads(data[32 : 32 + n_header]), data[start:]


def put_together(header: bytes | dict[str, Any], arrays: bytes, version: int = 1) -> bytes:
    """A file with a correct checksum, whatever its header says."""
    if isinstance(header, dict):
        header = json.dumps(header).encode()
    body = header + bytes(-(32 + len(header)) % 64) + arrays
    start = struct.pack("<8sIIQ", b"\x93GPUQS\r\n", version, len(header), 32 + len(body))
    rest = bytes(4) + body
    return start + struct.pack("<I", zlib.crc32(start + rest)) + rest
