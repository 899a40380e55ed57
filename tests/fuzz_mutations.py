"""Seeded mutations of files: values, keys and structure of documents, and bytes of everything."""

import copy
import json
import random
from typing import Any

NASTY: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        0.5,
        2,
        1e308,
        -1e308,
        10**400,
        -(10**30),
        float("inf"),
        float("nan"),
        1e-320,
    ),
    *(
        "",
        " ",
        "x",
        "nan",
        "1e999",
        "0x10",
        "1_000",
        "é",
        "\ud800",
        "\0",
        "\n",
        "../../etc/passwd",
        "/etc/passwd",
    ),
    *(
        [],
        {},
        [[]],
        [None],
        [1, "a"],
        [[[1]]],
        {"data": []},
        {"rows": 3, "cols": 3, "data": [1] * 9},
        ["x"] * 9,
    ),
    *(
        "x" * 5000,
        [0] * 5000,
        {"a": {"b": {"c": []}}},
        "C:\\x",
        "a\\b",
        4294967296,
        65537,
        "*",
        "=",
        "..",
        ".",
    ),
)


def mutate_document(document: Any, draw: random.Random) -> Any:
    """Return a copy of parsed JSON or YAML with one to three changes of values, keys or lengths."""
    result = json.loads(json.dumps(document))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_list_places(result))
        if not places:
            return copy.deepcopy(draw.choice(NASTY))
        parent, key = draw.choice(places)
        change = draw.randrange(6)
        if change <= 2:
            parent[key] = copy.deepcopy(draw.choice(NASTY))
        elif change == 3:
            del parent[key]
        elif change == 4 and isinstance(parent, dict):
            parent[draw.choice(("", "K", "k1", "model", "frames", "xi", "name", str(key).upper()))] = (
                copy.deepcopy(parent[key])
            )
        elif isinstance(parent, list):
            parent.insert(0, copy.deepcopy(parent[key]))
        else:
            parent[key] = [parent[key]]
    return result


def _list_places(value: Any) -> Any:
    """Yield every (container, key) in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _list_places(inner)


def mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    """Return bytes with a part changed, cut, repeated or inserted."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        start = draw.randrange(len(data) + 1)
        length = draw.choice((1, 1, 4, 8, 64))
        change = draw.randrange(6)
        if change == 0 and data:
            data[min(start, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif change == 1:
            data[start : start + length] = bytes(draw.randrange(256) for _ in range(length))
        elif change == 2:
            del data[start : start + length]
        elif change == 3:
            data[start:start] = data[start : start + length]
        elif change == 4:
            data[start:start] = draw.choice(
                (b"\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"1e999", b"-", b"{", b"nan ")
            )
        else:
            del data[start:]
    return bytes(data)


def mutate_text(text: str, draw: random.Random) -> str:
    """Return text with one or two of its words replaced, removed or repeated."""
    words = text.split(" ")
    for _ in range(draw.choice((1, 1, 2))):
        place = draw.randrange(len(words))
        nasty = draw.choice(NASTY)
        words[place] = draw.choice(
            (f"{nasty!s:.6000}", "", f"{words[place]} {words[place]}", words[place] + "0")
        )
    return " ".join(words)
