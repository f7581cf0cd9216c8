"""Stores of many files and names, and a hash of what is read of them, in order. Imports little: processes import it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from singa_dask.data.stores import Store, open_store
from singa_dask.data.stores.tables.table_store import TableStore
from tests.contracts.records import read_all


def write_listed(folder: Path) -> None:
    """Write stores whose names differ in case, in digits and in length."""
    odd = ["b", "B", "a", "10", "9", "01", "ä", "z"]
    for i, name in enumerate(odd):
        part = pd.DataFrame(
            {"x": [i / 7] * 3, "colour": [name, odd[i - 1], odd[i - 3]], "kind": [f"k{name}", "k", "l"]}
        )
        for place in ("table", "keyed/" + f"key={name}", "rows"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        part.to_csv(folder / "table" / f"part-{i}{name}.csv", index=False)
        part.to_parquet(folder / "keyed" / f"key={name}" / "part.parquet")
        (folder / "rows" / f"{name}.jsonl").write_text(json.dumps({"features": [i], "label": i % 3}) + "\n")
        for j in range(3):
            (folder / "pictures" / name).mkdir(parents=True, exist_ok=True)
            Image.new("L", (2, 2), i * 9 + j).save(folder / "pictures" / name / f"{j}.png")


def digest(root: str) -> str:
    """Return a hash of records, categories and classes, in order."""
    said, folder = hashlib.sha256(), Path(root)
    table: dict[str, Any] = {"features": ["x", "colour"], "label": ["kind"], "categories": {"colour": []}}
    keyed = {**table, "features": ["x", "colour", "key"], "categories": {"colour": [], "key": []}}
    opened: list[Callable[[], Store]] = [
        lambda: TableStore(str(folder / "table"), **table),
        lambda: TableStore(str(folder / "t*" / "*[a-z0-9A-Z].csv"), **table),
        lambda: TableStore(str(folder / "keyed"), **keyed),
        lambda: open_store(str(folder / "rows" / "*.jsonl"), "jsonl"),
        lambda: open_store(str(folder / "pictures"), "image-folder"),
        lambda: open_store(str(folder / "pictures" / "*" / "*.png"), "image-folder"),
    ]
    for each in opened:
        with each() as store:
            facts = store.table_facts.to_dict() if store.table_facts else None
            said.update(repr((list(store.class_names), facts)).encode())
            for name, array in sorted(read_all(store).items()):
                said.update(name.encode() + array.tobytes())
    return said.hexdigest()
