"""Format-aware ways to damage models or documents, for `campaign.py`."""

from __future__ import annotations

import json
import random
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from gpuqs.cpu_fallback import ubjson

Rng = random.Random
#: Damages one input; may take pieces from the others.
Mutate = Callable[[Rng, bytes, list[bytes]], bytes]

#: A damaged input is cut to this length.
MAX_BYTES = 1 << 20

WHOLE = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 30, 31, 32, 33, 63, 64, 127, 128, 255, 256, 999, 65535, 65536, 1 << 20]
WHOLE += [1 << 24, (1 << 24) - 1, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64]
WHOLE += [-1, -2, -3, -4, -31, -32, -128, -(2**31), -(2**31) - 1, -(2**63), -(2**63) - 1, 10**19, 10**400]
REAL = [0.0, -0.0, 0.5, -0.5, 1.5, 1e-35, -1e-35, 1e-36, 5e-324, -5e-324, 1e-45, 1.1754944e-38, 2.5e-310]
REAL += [3.4028234663852886e38, 3.4028235677973366e38, 1e39, -1e39, 1e300, 1.7976931348623157e308]
REAL += [-1.7976931348623157e308, float("inf"), -float("inf"), float("nan"), 16777217.0, 0.1, 123456.789]
TEXT = ["", " ", "0", "1", "-1", "nan", "inf", "1e5", "1_0", "0x10", "\u0663", "\ud800", "\x00", "a,b", "=", "null"]
TEXT += ["9" * 5000, "x" * 300, "binary sigmoid:1", "[1E0,2E0]", "é", "true"]


def a_number(rng: Rng) -> int | float:
    return rng.choice(WHOLE) if rng.random() < 0.6 else rng.choice(REAL)


def a_value(rng: Rng) -> Any:
    """A random JSON value, biased towards dangerous ones."""
    kind = rng.randrange(8)
    if kind < 4:
        return a_number(rng)
    if kind == 4:
        return rng.choice(TEXT)
    if kind == 5:
        return rng.choice([True, False, None])
    if kind == 6:
        return [a_number(rng) for _ in range(rng.randrange(4))]
    return rng.choice([[], {}, {"a": 1}, [[]], [[1], [2]], [None], ["a", "b"], [{}]])


# -- any bytes, and any text -------------------------------------------------------------------


def damage_bytes(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    """Flip, cut, repeat, move and splice bytes without knowledge of the format."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + rng.choice([1, 4, 16, 100, 1000]))
        kind = rng.randrange(9)
        if kind == 0 and data:
            at = min(a, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:a] + data[b:]
        elif kind == 2:
            data = data[:b] + data[a:b] * rng.choice([*[1] * 10, 2, 10, 1000]) + data[b:]
        elif kind == 3:
            data = data[:a] + rng.randbytes(b - a) + data[b:]
        elif kind == 4:
            data = data[:a] + struct.pack(rng.choice(["<i", ">i"]), rng.choice([0, 1, -1, 2**31 - 1])) + data[a + 4 :]
        elif kind == 5:
            other = rng.choice(others)
            at = rng.randrange(len(other) + 1)
            data = data[:a] + other[at : at + rng.choice([8, 64, 512, 1 << 20])] + data[b:]
        elif kind == 6:
            data = data[: rng.choice([a, len(data) - 1])]
        elif kind == 7:
            c = rng.randrange(len(data) + 1)
            data = (data[:a] + data[b:])[:c] + data[a:b] + (data[:a] + data[b:])[c:]
        else:
            data = data[:a] + rng.choice([b"\0", b"\xff", b"\r\n", b"\n", b" ", b"\xef\xbb\xbf", b"\\u0000"]) + data[a:]
    return data


_NUMBER = re.compile(rb"-?\d[\d.eE+-]*|nan|inf")


def damage_text(
    tokens: list[bytes], separator: bytes, token: re.Pattern[bytes], rng: Rng, data: bytes, others: list[bytes]
) -> bytes:
    """Damage text made of lines or tags: replace numbers, delete, repeat and swap pieces, insert tokens.

    Parameters
    ----------
    tokens : list of bytes
        Tokens worth inserting.
    separator : bytes
        Separator between the pieces.
    token : re.Pattern
        Pattern of places worth replacing.
    """
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        kind = rng.randrange(10)
        if kind < 4:
            found = list((_NUMBER if kind < 3 else token).finditer(data))
            if found:
                place = rng.choice(found)
                data = data[: place.start()] + _instead(rng, place[0], tokens) + data[place.end() :]
        elif kind < 8:
            parts = data.split(separator)
            a, b = (rng.randrange(len(parts)) for _ in range(2))
            if kind == 4:
                del parts[a]
            elif kind == 5:
                parts[b:b] = [parts[a]] * rng.choice([1, 1, 2, 50])
            elif kind == 6:
                parts[a], parts[b] = parts[b], parts[a]
            else:
                parts[a] = rng.choice(rng.choice(others).split(separator))
            data = separator.join(parts)
        elif kind == 8:
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.choice(tokens) * rng.choice([*[1] * 20, *[3] * 10, 20_000]) + data[at:]
        else:
            data = damage_bytes(rng, data, others)
    return data


def _instead(rng: Rng, old: bytes, tokens: list[bytes]) -> bytes:
    kind = rng.randrange(5)
    if kind == 0 and re.fullmatch(rb"-?\d{1,9}", old):
        return b"%d" % (int(old) + rng.choice([-1, 1]))
    if kind == 1:
        return rng.choice(tokens)
    if kind == 2:
        return old + rng.choice([b" ", b"0", b".", b"e", b"-", b"1" * 400, b" 1"])
    return str(a_number(rng)).encode()


# -- JSON and UBJSON ---------------------------------------------------------------------------


def damage_tree(rng: Rng, root: Any) -> Any:
    """Change one place of parsed JSON, mildly or wildly."""
    path: list[tuple[Any, Any]] = []
    here = root
    while isinstance(here, (dict, list)) and here and (not path or rng.random() < 0.88):
        key = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
        path.append((here, key))
        here = here[key]
    if not path:
        return a_value(rng)
    holder, key = path[-1]
    kind = rng.randrange(9)
    if kind < 2 and isinstance(here, (int, float)) and abs(here) < 1e15:
        holder[key] = here + rng.choice([-1, 1]) if kind else here * rng.choice([-1, 0, 2, 1.5])
    elif kind == 2 and isinstance(holder, list):
        at = rng.randrange(len(holder))
        holder[key], holder[at] = holder[at], holder[key]
    elif kind == 3:
        del holder[key]
    elif kind == 4 and isinstance(holder, list):
        holder[key:key] = [here] * rng.choice([1, 1, 3, 300])
    elif kind == 5 and isinstance(holder, dict):
        holder[rng.choice(["x", key + "x", *holder])] = holder.pop(key)
    elif kind == 6:
        holder[key] = {"a": here} if rng.random() < 0.5 else [here]
    elif kind == 7 and isinstance(here, str) and re.fullmatch(r"[\dE.+-]+", here):
        holder[key] = str(a_number(rng))
    else:
        holder[key] = a_value(rng)
    return root


def damage_json(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    """Damage one or more places of a JSON model, or its text."""
    text = data if rng.random() < 0.85 else damage_bytes(rng, data, others)
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        tree = damage_tree(rng, tree)
    if rng.random() < 0.01:
        nested = rng.choice([b"[", b'{"a":']) * rng.choice([500, 100_000])
        return json.dumps(tree).encode().replace(b"1", nested, 1)
    return json.dumps(tree).encode()


#: A marker of UBJSON's typed arrays -> their type.
_TYPED = {"i": "i1", "U": "u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}


def damage_ubjson(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    """Damage places of a UBJSON model, and write it in its old or another UBJSON encoding; or damage its bytes."""
    if rng.random() < 0.25:
        return damage_bytes(rng, data, others)
    markers: dict[str, str] = {}
    try:
        tree = _plain(ubjson.decode(data), "", markers)
    except ValueError:
        return damage_bytes(rng, data, others)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        tree = damage_tree(rng, tree)
    data = b"".join(_ubjson(rng, tree, "", markers if rng.random() < 0.5 else None))
    return damage_bytes(rng, data, others) if rng.random() < 0.1 else data


def _plain(value: Any, key: str, markers: dict[str, str]) -> Any:
    """Convert arrays to lists; note the types of arrays in ``markers``, by the key that holds them."""
    if isinstance(value, np.ndarray):
        types = [np.dtype(dtype).newbyteorder("=") for dtype in _TYPED.values()]
        markers[key] = list(_TYPED)[types.index(value.dtype)]
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(item, name, markers) for name, item in value.items()}
    return [_plain(item, key, markers) for item in value] if isinstance(value, list) else value


def _ubjson(rng: Rng, value: Any, key: str, markers: dict[str, str] | None) -> list[bytes]:
    """Encode the value of a key; with ``markers``, as XGBoost writes it (it reads few other encodings)."""
    if value is None or isinstance(value, bool):
        return [{None: b"Z", True: b"T", False: b"F"}[value]]
    if isinstance(value, int):
        return [_ubjson_whole(value)]
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            if markers is not None or rng.random() < 0.5:
                return [b"d", np.array(value).astype(">f4").tobytes()]
        return [struct.pack(">cd", b"D", value)]
    whole = _ubjson_whole if markers is None else _ubjson_long
    if isinstance(value, str):
        return [b"S", *_ubjson_text(value, whole)]
    if isinstance(value, dict):
        items = [
            part
            for name, item in value.items()
            for part in (*_ubjson_text(name, whole), *_ubjson(rng, item, name, markers))
        ]
        return [b"{", *items, b"}"]
    if markers is not None:
        typed = markers.get(key, "")
    elif all(type(item) is int for item in value):
        typed = rng.choice(["iUIlL", "UilL", "lL", "L"]) if value else ""
    else:
        typed = "dD"
    for marker in typed:
        if all(type(item) in (int, float) for item in value) and _holds(marker, value):
            with np.errstate(over="ignore"):
                return [f"[${marker}#".encode(), whole(len(value)), np.array(value).astype(_TYPED[marker]).tobytes()]
    items = [part for item in value for part in _ubjson(rng, item, key, markers)]
    return [b"[", *items, b"]"] if markers is None else [b"[#", whole(len(value)), *items]


def _holds(marker: str, values: list[int | float]) -> bool:
    """Whether a typed array can hold the numbers, rounded to its type."""
    if marker in "dD":
        return max(map(abs, values), default=0) < 1e300
    limits = np.iinfo(_TYPED[marker])
    return all(type(value) is int and limits.min <= value <= limits.max for value in values)


def _ubjson_whole(value: int) -> bytes:
    for marker, code in zip("iUIlL", "bBhiq", strict=True):
        try:
            return marker.encode() + struct.pack(">" + code, value)
        except struct.error:
            continue
    return b"L" + struct.pack(">Q", value % 2**64)


def _ubjson_long(value: int) -> bytes:
    return b"L" + struct.pack(">q", value)


def _ubjson_text(text: str, whole: Callable[[int], bytes]) -> list[bytes]:
    raw = text.encode(errors="surrogatepass")
    return [whole(len(raw)), raw]


# -- gpuqs's own -------------------------------------------------------------------------------

_PREAMBLE = struct.Struct("<8sIIQII")


def damage_native(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    """Damage the header's JSON, values of the arrays, or any bytes; the checksum is usually correct."""
    if len(data) < _PREAMBLE.size:
        return damage_bytes(rng, data, others)
    magic, version, n_header, _, crc, zero = _PREAMBLE.unpack_from(data)
    header, arrays = data[32 : 32 + n_header], data[32 + n_header + -(32 + n_header) % 64 :]
    kind = rng.randrange(6)
    if kind < 3:
        header = damage_json(rng, header, [header])
    if 1 < kind < 5:
        for _ in range(rng.choice([1, 1, 2, 8])):
            dtype = np.dtype(rng.choice(["<i8", "<i4", "<f8", "|u1", "<u4"]))
            at = rng.randrange(max(1, len(arrays) // dtype.itemsize)) * dtype.itemsize
            with np.errstate(over="ignore", invalid="ignore"):
                number = np.float64(rng.choice(REAL)) if dtype.kind == "f" else np.int64(rng.choice(WHOLE[:30]))
                arrays = arrays[:at] + number.astype(dtype).tobytes() + arrays[at + dtype.itemsize :]
    if kind == 5:
        arrays = damage_bytes(rng, arrays, [other[1000:] or b"0" for other in others])
    body = header + bytes(-(32 + len(header)) % 64) + arrays
    start = _PREAMBLE.pack(magic, version, len(header), 32 + len(body), 0, zero)
    if rng.random() < 0.95:
        crc = zlib.crc32(body, zlib.crc32(start[28:], zlib.crc32(start[:24])))
    data = _PREAMBLE.pack(magic, version, len(header), 32 + len(body), crc, zero) + body
    return data if rng.random() < 0.98 else damage_bytes(rng, data, others)


def damage_words(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    """Damage 2-, 4- or 8-byte numbers, as FlatBuffers hold them (sizes, offsets, values), or any bytes."""
    if len(data) < 16 or rng.random() < 0.2:
        return damage_bytes(rng, data, others)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        size = rng.choice([2, 4, 4, 4, 8])
        at = rng.randrange(len(data) // size) * size
        old = int.from_bytes(data[at : at + size], "little")
        new = rng.choice([old + 1, old - 1, old ^ 1 << rng.randrange(8 * size), rng.choice(WHOLE[:30])])
        data = data[:at] + (new % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]
    return data


# -- ONNX --------------------------------------------------------------------------------------


def damage_onnx(rng: Rng, data: bytes, others: list[bytes]) -> bytes:
    """Damage attributes of the graph's nodes, the description of its input, or any bytes."""
    import onnx
    from google.protobuf.message import DecodeError

    if rng.random() < 0.2:
        return damage_bytes(rng, data, others)
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        return damage_bytes(rng, data, others)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        with suppress(UnicodeDecodeError):  # damaged names
            _damage_graph(rng, model.graph)
    return model.SerializeToString()


def _damage_graph(rng: Rng, graph: Any) -> None:
    nodes = [node for node in graph.node if node.attribute]
    kind = rng.randrange(12)
    if kind == 0:
        for dim in graph.input[0].type.tensor_type.shape.dim[-1:] if graph.input else ():
            dim.dim_value = rng.choice([n for n in WHOLE if abs(n) < 2**63])
    elif kind == 1 and graph.node:
        node = rng.choice(list(graph.node))
        node.op_type = rng.choice(["TreeEnsembleRegressor", "TreeEnsembleClassifier", "Cast", "Exp", "Identity", ""])
    elif kind == 2 and graph.input:
        graph.input[0].type.tensor_type.elem_type = rng.choice([0, 1, 6, 7, 8, 10, 11, 99])
    elif kind == 3 and graph.node:
        graph.node.append(rng.choice(list(graph.node)))
    elif nodes:
        node = rng.choice(nodes)
        attribute = rng.choice(list(node.attribute))
        if kind == 4:
            node.attribute.remove(attribute)
        elif kind == 5:
            attribute.type = rng.randrange(15)
        elif kind == 6:
            attribute.name = rng.choice([other.name for other in node.attribute])
        else:
            _damage_attribute(rng, attribute)


def _damage_attribute(rng: Rng, attribute: Any) -> None:
    whole = [n for n in WHOLE if -(2**63) <= n < 2**63]
    texts = [
        b"BRANCH_LT",
        b"BRANCH_LEQ",
        b"BRANCH_EQ",
        b"BRANCH_NEQ",
        b"LEAF",
        b"AVERAGE",
        b"SUM",
        b"SOFTMAX",
        b"",
        b"\xff",
    ]
    lists = ((attribute.ints, whole), (attribute.floats, [x for x in REAL if not 3.5e38 < abs(x) < np.inf]))
    for values, instead in (*lists, (attribute.strings, texts)):
        if len(values):
            at, other = rng.randrange(len(values)), rng.randrange(len(values))
            kind = rng.randrange(5)
            if kind == 0:
                del values[at]
            elif kind == 1:
                values.extend([values[at]] * rng.choice([1, 1, len(values)]))
            elif kind == 2:
                values[at], values[other] = values[other], values[at]
            else:
                values[at] = rng.choice(instead)
    if attribute.s:
        attribute.s = rng.choice(texts)
