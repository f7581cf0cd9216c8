"""New records by every door, files, requests, frames and partitions: the same inputs of a net, or the same refusal."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import unicodedata
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from openpyxl import Workbook

import singa_dask as sd
from singa_dask.cli.main import main
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.inference.memory_records import MemoryReading
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.serving import Limits, ModelServer
from singa_dask.serving.bodies import Refused, read_body
from tests.contracts.records import read_all
from tests.jobs.conftest import KEYS
from tests.serving.conftest import ask

# -- tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of column: its type in Arrow and in pandas, and its values."""

    arrow: pa.DataType
    pandas: Any
    values: st.SearchStrategy[Any]
    missing: bool = True
    zone: str | None = None  # of a column of dates; empty for dates without a zone


def whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    odd = [each for each in (0, low, high, 16777217, 2**53 + 1, 2**63, 7) if low <= each <= high]
    return st.sampled_from(odd) | st.integers(low, high)


ODD = [-0.0, 1e-320, float(2**53), 9007199254740993.0, 0.1, 1 / 3, 16777217.0, 1.17549435e-38, 7.0, 3.4e38]
NAMES = ["a", " a ", "b c", "NA", "7", "7.0", "07", "né", "ne\u0301", "True", "x,y", 'q"q', "1e3", "ß"]
KINDS: dict[str, Kind] = {
    "double": Kind(pa.float64(), "float64", st.sampled_from(ODD) | st.floats(-1e38, 1e38)),
    "float": Kind(pa.float32(), "float32", st.floats(-(2.0**100), 2.0**100, width=32)),
    "Float64": Kind(pa.float64(), "Float64", st.sampled_from(ODD) | st.floats(-1e38, 1e38)),
    "decimal": Kind(pa.decimal128(20, 4), object, st.decimals(-(10**15), 10**15, places=4)),
    "bool": Kind(pa.bool_(), "bool", st.booleans(), False),
    "boolean": Kind(pa.bool_(), "boolean", st.booleans()),
    "text": Kind(pa.string(), object, st.sampled_from(NAMES)),
    "string": Kind(pa.string(), "string", st.sampled_from(NAMES)),
    "category": Kind(pa.dictionary(pa.int32(), pa.string()), "category", st.sampled_from(NAMES)),
}
for bits in (8, 16, 32, 64):
    for signed in (True, False):
        name = f"{'' if signed else 'u'}int{bits}"
        KINDS[name] = Kind(getattr(pa, name)(), name, whole(bits, signed), False)
        nullable = name.replace("uint", "UInt").replace("int", "Int", 1) if signed else name.replace("uint", "UInt")
        KINDS[nullable] = Kind(getattr(pa, name)(), nullable, whole(bits, signed))
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def in_berlin(time: dt.datetime) -> dt.datetime:
    return time.replace(year=min(time.year, 2036), day=min(time.day, 28), tzinfo=BERLIN)


TIMES = st.datetimes(dt.datetime(1940, 1, 1), dt.datetime(2100, 1, 1)).map(lambda time: time.replace(microsecond=0))
DATE_TEXTS = ["2024-02-29", "2024/2/9", "20240131", "1999-12-31 23:59", "2024-1-5 5:07 PM", "2024-07-31T00:00:59.5"]
DATES = {
    "day": Kind(pa.date32(), object, st.dates(dt.date(1900, 3, 1), dt.date(2100, 1, 1)), True, ""),
    "time": Kind(pa.timestamp("us"), "datetime64[us]", TIMES, True, ""),
    "zoned": Kind(
        pa.timestamp("us", "Europe/Berlin"), "datetime64[us, Europe/Berlin]", TIMES.map(in_berlin), True,
        "America/New_York",
    ),
    "date text": Kind(pa.string(), object, st.sampled_from(DATE_TEXTS), True, ""),
    "zoned text": Kind(
        pa.string(), object, st.sampled_from(["2024-02-29T23:30Z", "2024-07-31 23:30:00+0200"]), True, "UTC"
    ),
}  # fmt: skip
KINDS |= DATES
PARTS = ["year", "month", "day", "weekday", "dayofyear", "hour", "minute"]
BY_NAME = (pa.string(), pa.dictionary(pa.int32(), pa.string()))
MAY_BE_NAMED = (pa.bool_(), pa.int8(), pa.int64(), pa.uint64())


@dataclass(frozen=True)
class Table:
    """Columns of values, None where one is missing, with the kind of each."""

    columns: dict[str, list[Any]]
    kinds: dict[str, Kind]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def arrow(self) -> pa.Table:
        return pa.table({name: pa.array(values, self.kinds[name].arrow) for name, values in self.columns.items()})

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame({name: self._series(name, values) for name, values in self.columns.items()})

    def _series(self, name: str, values: list[Any]) -> pd.Series:
        dtype = self.kinds[name].pandas
        if dtype in ("float64", "float32"):
            return pd.Series(np.array([math.nan if each is None else each for each in values], dtype))
        if pa.types.is_integer(self.kinds[name].arrow) and None not in values:
            # of a list of large integers pandas makes floats
            return pd.Series(np.array(values, self.kinds[name].arrow.to_pandas_dtype())).astype(dtype)
        return pd.Series(values, dtype=dtype)


def json_of(value: Any) -> str:
    """Return a value as JSON, with all digits."""
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)


def objects(table: Table) -> list[str]:
    return ["{" + ", ".join(f"{json.dumps(k)}: {json_of(v)}" for k, v in row.items()) + "}" for row in table.rows]


def field_of(value: Any) -> str:
    """Return a field of CSV; None and the empty text are both empty there."""
    text = "" if value is None else repr(value) if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n]', text) else text


def write_csv(table: Table, path: Path) -> None:
    lines = [table.columns, *(row.values() for row in table.rows)]
    # an empty line would be no record
    path.write_text("".join(",".join([*map(field_of, line), "."]) + "\n" for line in lines))


def write_sheet(table: Table, path: Path) -> None:
    book = Workbook()
    for line in [table.columns, *(row.values() for row in table.rows)]:
        # a sheet has no time zones
        line = [str(each) if getattr(each, "tzinfo", None) else each for each in line]
        book.active.append([*line, "."])
    book.save(path)


FILES: dict[str, Callable[[Table, Path], Any]] = {
    "x.csv": write_csv,
    "x.parquet": lambda table, path: pq.write_table(table.arrow(), path),
    "frame.parquet": lambda table, path: table.frame().to_parquet(path),
    "x.feather": lambda table, path: pyarrow.feather.write_feather(table.arrow(), path),
    "x.jsonl": lambda table, path: path.write_text("".join(f"{line}\n" for line in objects(table))),
    "x.json": lambda table, path: path.write_text(f"[{', '.join(objects(table))}]"),
    "x.xlsx": write_sheet,
}


def body_of(table: Table) -> Any:
    """Return the records of a request, as a server reads them."""
    text = f'{{"records": [{", ".join(objects(table))}]}}'
    return read_body(text.encode(), "application/json", {}, Limits(1)).records


MEMORY: dict[str, Callable[[Table], Any]] = {
    "body": body_of,
    "frame": Table.frame,
    "arrow": Table.arrow,
    "rows": lambda table: table.rows,
    "columns": lambda table: dict(table.columns),
    "rows of a frame": lambda table: table.frame().to_dict("records"),
}


# -- doors -------------------------------------------------------------------------------------------------------


def outcomes(table: Table, facts: TableFacts, options: dict[str, Any], folder: Path, sheet: bool) -> dict[str, Any]:
    """Return by door the bits of the inputs, or the refusal."""
    wide = options["standardise"]
    keys = {key: value for key, value in options.items() if key != "standardise"}
    conf = StoreConf(path="x.csv", **options)

    def read_file(path: Path) -> Arrays:
        # as `predict` reads: without labels, and no record is left out
        missing = "error" if keys["missing"] == "skip" else keys["missing"]
        chosen = {**keys, "missing": missing, "has_label": False, "facts": facts.to_dict()}
        with TableStore(str(path), **chosen) as store:
            if wide:
                store.widen()
            return read_all(store)

    def read_memory(data: Any, name: str = "x") -> Arrays:
        records = MemoryReading(conf, facts).records(data, name)
        return records.read(0, records.n)

    found: dict[str, Any] = {}
    for name, write in FILES.items():
        if name != "x.xlsx" or sheet:
            write(table, folder / name)
            found[name] = outcome(lambda path=folder / name: read_file(path))
    for name, make in MEMORY.items():
        found[name] = outcome(lambda make=make: read_memory(make(table)))
    # decimals and other objects become texts otherwise
    with dask.config.set({"dataframe.convert-string": False}):
        parts = dask.compute(*dd.from_pandas(table.frame(), npartitions=2).to_delayed())
    found["partitions"] = outcome(lambda: {"data": np.concatenate([read_memory(part)["data"] for part in parts])})
    return found


REFUSALS = {
    "missing column": r" (is|are) missing\. ",
    "no value": r"no value",
    "not known": "unknown category",
    "too large": "does not fit",
    "not a date": "is not a date|has a time zone|has no time zone|expected dates",
    "not a number": "not a number|holds strings|expected a number|expected numbers",
}


def outcome(read: Callable[[], Arrays]) -> Any:
    try:
        data = read()["data"]
        return data.dtype.str, data.tobytes()
    except (DataError, Refused) as error:
        said = [kind for kind, pattern in REFUSALS.items() if re.search(pattern, str(error))]
        return said[0] if said else "", tuple(sorted(set(re.findall(r"'(c\d)'", str(error).partition("Columns:")[0]))))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a table to learn from, new records with one fault at most, and how both are read."""
    chosen = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    kinds = {f"c{i}": KINDS[kind] for i, kind in enumerate(chosen)}
    dated = {name for name, kind in kinds.items() if kind.zone is not None}
    named = {name for name, kind in kinds.items() if kind.arrow in BY_NAME} - dated
    named |= {name for name, kind in kinds.items() if kind.arrow in MAY_BE_NAMED and draw(st.booleans())}
    learned = {name: draw(st.lists(kind.values, min_size=6, max_size=6)) for name, kind in kinds.items()}
    # a word for missing values, such as NA, is a name where it is listed
    listed = {name: draw(st.booleans()) or "NA" in learned[name] for name in named if kinds[name].arrow in BY_NAME}
    gaps = draw(st.sampled_from([[], [""]]))
    n = draw(st.integers(1, 5))
    new: dict[str, list[Any]] = {}
    for name, kind in kinds.items():
        values = st.sampled_from(learned[name]) if name in named else kind.values
        new[name] = draw(st.lists(values, min_size=n, max_size=n))
    kinds |= {"z1": Kind(pa.float64(), "float64", st.none()), "z2": Kind(pa.string(), object, st.none())}
    event, at = (
        draw(st.sampled_from(["", "", "gap", "absent", "unknown", "infinite", "no date"])),
        draw(st.integers(0, n - 1)),
    )
    victim = draw(st.sampled_from(sorted(new)))
    if event == "gap" and kinds[victim].missing:
        new[victim][at] = draw(st.sampled_from([None, "", " "])) if kinds[victim].arrow == pa.string() else None
    elif event == "no date" and kinds[victim].zone is not None and kinds[victim].arrow == pa.string():
        other = f"2024-01-01T10:00{'Z' * (not kinds[victim].zone)}"
        new[victim][at] = draw(st.sampled_from(["x", "2023-02-29", "31/1/24", other]))
    elif event == "unknown" and victim in named:
        new[victim][at] = draw(kinds[victim].values.filter(lambda value: value != "NA"))
    elif event == "infinite" and pa.types.is_floating(kinds[victim].arrow):
        new[victim][at] = draw(st.sampled_from([math.inf, -math.inf]))
    new |= {"z1": [0.5] * n, "z2": ["text"] * n} if event == "absent" or draw(st.booleans()) else {}
    order = draw(st.permutations([name for name in new if event != "absent" or name != victim]))
    return {
        "learned": Table(learned, kinds),
        "new": Table({name: new[name] for name in order}, kinds),
        "options": {
            "features": [*learned],
            "categories": {
                name: [*gaps, *dict.fromkeys(each.strip() for each in learned[name])] if listed.get(name) else []
                for name in sorted(named)
            },
            "dates": {
                name: {"parts": draw(st.permutations(PARTS))[: draw(st.integers(1, 7))], "zone": kinds[name].zone}
                for name in sorted(dated)
            },
            "missing": draw(st.sampled_from(["error", "skip", "mean", 0.25])),
            "unknown": draw(st.sampled_from(["error", "ignore"])),
            "standardise": draw(st.booleans()),
        },
        "door": draw(st.sampled_from(["x.csv", "x.parquet", "x.jsonl"])),
        # a sheet has no larger integers, and no infinite numbers
        "sheet": draw(st.integers(0, 4)) == 0
        and event != "infinite"
        and not any("64" in kind or kind == "decimal" for kind in chosen),
    }


FLAGS = {"month": range(1, 13), "weekday": range(7), "hour": range(24)}


def parts_of(values: list[Any], name: str, form: dict[str, Any]) -> pd.DataFrame:
    """Return the values of dates, as pandas computes them; those of missing dates are NaN."""
    times = pd.to_datetime(pd.Series(values, dtype=object), format="mixed", utc=bool(form["zone"]))
    times = times.dt.tz_convert(form["zone"]) if form["zone"] else times
    found = {}
    for part in form["parts"]:
        numbers = getattr(times.dt, {"weekday": "day_of_week", "dayofyear": "day_of_year"}.get(part, part))
        found |= {f"{name}.{part}={each}": (numbers == each).where(times.notna()) for each in FLAGS.get(part, ())}
        found |= {} if part in FLAGS else {f"{name}.{part}": numbers}
    return pd.DataFrame(found).astype(float)


@pytest.mark.long
@settings(
    max_examples=200, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(cases())
def test_new_records_are_the_same_by_every_door(tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]) -> None:
    folder, options = tmp_path_factory.mktemp("doors"), case["options"]
    learned, new = case["learned"], case["new"]
    path = folder / f"train-{case['door']}"
    FILES[case["door"]](learned, path)
    keys = {key: value for key, value in options.items() if key != "standardise"}
    with TableStore(str(path), **keys, has_label=False) as store:
        facts = store.table_facts
    found = outcomes(new, facts, options, folder, case["sheet"])
    expected = found["x.parquet"]
    if "x.xlsx" in found and expected[0] in ("<f4", "<f8"):
        # a sheet has one zero, and 16 digits
        sheet, other = (np.frombuffer(each[1], each[0]) for each in (found.pop("x.xlsx"), expected))
        assert np.array_equal(sheet.astype(np.float32), other.astype(np.float32))
    assert {name: each for name, each in found.items() if each != expected} == {}, expected
    if expected[0] in ("<f4", "<f8"):
        data = np.frombuffer(expected[1], expected[0]).reshape(-1, len(facts.names))
        for name, form in options["dates"].items():
            wanted, fill = parts_of(new.columns[name], name, form), options["missing"]
            if fill == "mean":
                wanted = wanted.fillna(parts_of(learned.columns[name], name, form).mean())
            elif fill == 0.25:
                wanted = wanted.fillna({each: fill * ("=" not in each) for each in wanted})
            at = [facts.names.index(each) for each in wanted]
            assert np.array_equal(data[:, at], wanted.to_numpy().astype(expected[0])), name
        for name in set(learned.columns) - set(options["categories"]) - set(options["dates"]):
            present = [i for i, value in enumerate(new.columns[name]) if value is not None]
            numbers = np.array([float(new.columns[name][i]) for i in present]).astype(expected[0])
            assert data[present, facts.names.index(name)].tobytes() == numbers.tobytes()
    elif expected[0] == "missing column":
        assert expected[1] == tuple(sorted(learned.columns.keys() - new.columns.keys()))


def test_accents_in_names_of_columns_may_be_written_in_two_ways(tmp_path: Path) -> None:
    columns = {"\u00e9tat": ["NA", "b", None], "gr\u00f6\u00dfe": [1.5, -2.0, None]}
    kinds = {"\u00e9tat": KINDS["category"], "gr\u00f6\u00dfe": KINDS["double"]}
    options = {"categories": {"\u00e9tat": ["NA", "b", ""]}, "missing": 0.25, "unknown": "error", "standardise": False}
    facts = TableFacts((*columns,), categories={"\u00e9tat": ("NA", "b", "")}, booleans=())
    other = {
        name: Table(
            {unicodedata.normalize(name, key): values for key, values in columns.items()},
            {unicodedata.normalize(name, key): kind for key, kind in kinds.items()},
        )
        for name in ("NFC", "NFD")
    }
    assert [*other["NFD"].columns] != [*columns]
    found = {name: outcomes(table, facts, options, tmp_path, sheet=True) for name, table in other.items()}
    assert found["NFD"] == found["NFC"]
    data = np.float32([[1, 0, 0, 1.5], [0, 1, 0, -2], [0, 0, 1, 0.25]])
    assert {*found["NFD"].values()} == {("<f4", data.tobytes())}
    both = pd.DataFrame([[1.0, 2.0]], columns=["gr\u00f6\u00dfe", "gro\u0308\u00dfe"]).assign(état="b")
    with pytest.raises(DataError, match="column 'gr\u00f6\u00dfe' occurs twice"):
        MemoryReading(StoreConf(path="x.csv", **options), facts).records(both)


# -- a trained net -----------------------------------------------------------------------------------------------

TRAINED = pd.DataFrame(
    {
        "size": [0.1, None, 3.0, -0.0] * 10,
        "count": [2**53 + 1, 7, -1, 0] * 10,
        "place": ["né", "NA", "7", "b c"] * 10,
        "kind": ["big", "small"] * 20,
    }
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the directory of a run on a table with categories and missing values."""
    folder = tmp_path_factory.mktemp("trained")
    TRAINED.to_parquet(folder / "train.parquet")
    store = {
        "path": folder / "train.parquet",
        "batchsize": 8,
        "shape": [6],
        "features": ["size", "count", "place"],
        "label": "kind",
        "categories": {"place": []},
        "missing": "mean",
        "standardise": True,
    }
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=store),
            sd.layer("InnerProduct", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["innerproduct", "data"]),
        ]
    )
    sd.train(sd.Job(net, train_steps=3, **KEYS), run_dir=str(folder / "run"), progress=False)
    return str(folder / "run")


def test_a_trained_net_predicts_the_same_by_every_door(run: str, tmp_path: Path) -> None:
    kinds = {"place": "category", "count": "Int64", "size": "double"}
    columns = {"place": ["7", "NA", "ne\u0301"], "count": [2**53 + 1, None, 7], "size": [1e-320, 0.5, None]}
    table = Table(columns, {name: KINDS[kind] for name, kind in kinds.items()})
    model, frame = sd.load_model(run), table.frame()
    wanted = model.predict_proba(frame)
    shown = None
    for name, write in FILES.items():
        write(table, tmp_path / name)
        said = CliRunner().invoke(
            main, ["predict", f"{run}/job.yaml", "--init-from", run, "--data", str(tmp_path / name), "--proba"]
        )
        shown = shown or said.stdout
        assert (said.stdout, said.stdout.count("\n")) == (shown, 4), name
        assert sd.predict(run, tmp_path / name, proba=True).tobytes() == wanted.tobytes(), name
    for name, make in MEMORY.items():
        assert model.predict_proba(make(table)).tobytes() == wanted.tobytes(), name
    for parts in (1, 2):
        lazy = sd.predict(model, dd.from_pandas(frame, npartitions=parts), proba=True)
        assert lazy.compute(scheduler="sync").to_numpy().tobytes() == wanted.tobytes()
    body = f'{{"proba": true, "records": [{", ".join(objects(table))}]}}'.encode()
    lacks = b'{"records": [{"size": 1, "place": "7"}]}'
    with ModelServer(model, Limits(8)) as server:
        answers = [ask(server.url, given=each) for each in (body, lacks)]
    assert np.float32(answers[0].json["probabilities"]).tobytes() == wanted.tobytes()
    refused = "column 'count' is missing. Columns: size, place."
    fill = " Start serve with --missing mean or a number to fill in the values."
    assert answers[1].json["error"] == f"records: {refused}{fill}"
    (tmp_path / "lacks.csv").write_text("size,place\n1,7\n")
    with pytest.raises(sd.ConfigError, match=f"lacks.csv: {refused}"):
        sd.predict(run, tmp_path / "lacks.csv")
    with pytest.raises(DataError, match=f"x: {refused}"):
        sd.predict(model, frame[["size", "place"]])


def test_an_absent_column_is_filled_in_only_if_the_caller_asks_for_it(
    run: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns = {"place": ["7", "NA", "b c"], "size": [0.5, 2.0, None]}
    table = Table(columns, {name: KINDS[kind] for name, kind in {"place": "category", "size": "double"}.items()})
    frame, plain, filling = table.frame(), sd.load_model(run), sd.load_model(run, missing=7)
    wanted = plain.predict_proba(frame.assign(count=7, size=[0.5, 2.0, 7.0]))
    warning, refused = "no column 'count'. All values are read as missing", "column 'count' is missing.* Pass missing="
    for make in MEMORY.values():
        with pytest.warns(sd.DataWarning, match=f"x: {warning}"):
            assert filling.predict_proba(make(table)).tobytes() == wanted.tobytes()
        with pytest.raises(DataError, match=refused):
            plain.predict(make(table))
    with pytest.warns(sd.DataWarning, match=warning):
        assert filling.count_filled(frame)["filled"] == {"count": 3, "size": 1}
    for name, write in FILES.items():
        write(table, tmp_path / name)
        assert sd.predict(run, tmp_path / name, proba=True, missing=7).tobytes() == wanted.tobytes(), name
        with pytest.raises(sd.ConfigError, match=refused):
            sd.predict(run, tmp_path / name)
    with pytest.raises(
        DataError, match=r"'place' are missing\. Did you mean 'sizes'.*missing=.* and unknown='ignore' to"
    ):
        plain.predict(pd.DataFrame({"count": [1], "sizes": [1.0]}))
    with pytest.raises(DataError, match=r"are missing\. Columns: length\.$"):
        filling.predict(pd.DataFrame({"length": [1]}))
    with pytest.warns(sd.DataWarning, match=warning):
        lazy = sd.predict(filling, dd.from_pandas(frame, npartitions=2), proba=True)
        assert lazy.compute(scheduler="sync").to_numpy().tobytes() == wanted.tobytes()
    (tmp_path / "parts").mkdir()
    for part in ("parts/a.parquet", "parts/b.parquet"):
        pq.write_table(table.arrow(), tmp_path / part)
    command = ["predict", f"{run}/job.yaml", "--init-from", run, "--data", f"{tmp_path}/parts", "--missing"]
    said = CliRunner().invoke(main, [*command, "7"])
    assert (said.exit_code, caplog.text.count(f"parts: {warning}")) == (0, 1), said.stderr
    assert "count 6" in said.stderr
    assert "Pass --missing mean or a number to fill in" in CliRunner().invoke(main, [*command, "error"]).stderr


# -- no records --------------------------------------------------------------------------------------------------


def test_no_records_are_an_empty_answer_by_every_door_and_are_not_tested(run: str, tmp_path: Path) -> None:
    model, frame = sd.load_model(run), TRAINED.head(0)
    inputs = frame.drop(columns="kind")
    wanted = model.predict(TRAINED.head(1))[:0]
    empty: list[Any] = [[], (), {}, np.empty(0), np.empty((0, 6)), pd.DataFrame(), pa.table({}), inputs]
    empty += [pa.Table.from_pandas(inputs), {name: [] for name in inputs}, pd.DataFrame(columns=inputs.columns)]
    for data in empty:
        found = model.predict(data)
        assert (found.shape, found.dtype) == (sd.predict(model, data).shape, wanted.dtype) == ((0,), wanted.dtype)
        assert model.predict_proba(data).shape == model.extract(data, "softmaxloss").shape == (0, 2)
    assert len(sd.predict(model, dd.from_pandas(inputs, npartitions=1)).compute(scheduler="sync")) == 0
    with ModelServer(model, Limits(8)) as server:
        answer = ask(server.url, given={"records": [], "proba": True})
        bare = ask(server.url, "/predict?proba=true", given=[])
    assert (answer.status, answer.json["predictions"], answer.json["probabilities"]) == (200, [], [])
    assert (bare.status, bare.json) == (200, answer.json)
    files: dict[str, Callable[[Path], Any]] = {
        "x.csv": lambda path: inputs.to_csv(path, index=False),
        "x.parquet": inputs.to_parquet,
        "x.feather": inputs.to_feather,
        "x.xlsx": lambda path: inputs.to_excel(path, index=False),
    }
    for name, write in files.items():
        write(tmp_path / name)
        assert sd.predict(run, tmp_path / name).shape == (0,)
        assert sd.predict(run, tmp_path / name, proba=True).shape == (0, 2)
    # a file without columns is no table
    for name, text in (("none.csv", ""), ("none.json", "[]"), ("none.jsonl", "\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(sd.ConfigError, match=f"{name}: it is empty"):
            sd.predict(run, tmp_path / name)
    for data in (frame, dd.from_pandas(frame, npartitions=1)):
        with pytest.raises(DataError, match=r"x: no records\. Expected one or more, because metrics of no"):
            sd.test(model, data)
    frame.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(sd.ConfigError, match="no records but the header"):
        sd.test(model, tmp_path / "x.csv")


# -- empty texts -------------------------------------------------------------------------------------------------


def test_an_empty_text_is_predicted_as_an_unknown_word_by_every_door(tmp_path: Path) -> None:
    learned = pd.DataFrame({"text": ["good good", "bad", "so so", "bad good"] * 5, "kind": ["a", "b"] * 10})
    learned.to_parquet(tmp_path / "train.parquet")
    store = {"path": tmp_path / "train.parquet", "features": ["text"], "label": "kind", "missing": "skip"}
    store |= {"texts": {"text": {"length": 3}}, "shape": [3], "batchsize": 4}
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=store),
            sd.layer("InnerProduct", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["innerproduct", "data"]),
        ]
    )
    run = str(tmp_path / "run")
    model = sd.load_model(sd.train(sd.Job(net, train_steps=9, **KEYS), run_dir=run, progress=False))
    table = Table({"text": ["good", None, "zzz", "", " "]}, {"text": KINDS["text"]})
    wanted = model.predict_proba(pd.DataFrame({"text": ["good", "zzz", "zzz", "zzz", "zzz"]}))
    assert np.abs(wanted[0] - wanted[1]).max() > 1e-3
    for name, write in FILES.items():
        write(table, tmp_path / name)
        assert sd.predict(run, tmp_path / name, proba=True).tobytes() == wanted.tobytes(), name
    for name, make in MEMORY.items():
        assert model.predict_proba(make(table)).tobytes() == wanted.tobytes(), name
        assert model.count_filled(make(table)) == {"filled": {"text": 3}}, name
    body = f'{{"proba": true, "records": [{", ".join(objects(table))}]}}'.encode()
    with ModelServer(model, Limits(8)) as server:
        answer = ask(server.url, given=body).json
    assert np.float32(answer["probabilities"]).tobytes() == wanted.tobytes()
    assert answer["filled"] == {"text": 3}
    # a number is not the text that it was written as
    for row, kind, values in ((0, "int64", [7, 8]), (1, "double", [None, 7.5]), (1, "boolean", [None, True])):
        numbers = Table({"text": values}, {"text": KINDS[kind]})
        for name in FILES.keys() - {"x.csv"}:
            FILES[name](numbers, tmp_path / name)
            with (
                TableStore(str(tmp_path / name), features=["text"], texts=store["texts"], has_label=False) as file,
                pytest.raises(DataError, match=r"column 'text': \S+ has the type \w+, expected a text"),
            ):
                read_all(file)
        for make in MEMORY.values():
            with pytest.raises(DataError, match=rf"row {row}, column 'text': \S+ has the type \w+, expected a text"):
                model.predict(make(numbers))
    for mixed in ([{"text": 7}, {"text": "good"}], pd.DataFrame({"text": [7, "good"]})):
        with pytest.raises(DataError, match=r"(?s)column 'text'.*Convert it to numbers or strings"):
            model.predict(mixed)
    # with a label it is left out, as in training
    labelled = pd.DataFrame({"text": ["good", "", "bad"], "kind": ["a", "a", "a"]})
    labelled.to_csv(tmp_path / "labelled.csv", index=False)
    with pytest.warns(sd.DataWarning, match="1 record is left out"):
        whole = sd.test(run, tmp_path / "labelled.csv")
        assert whole == sd.test(model, labelled) == sd.test(model, labelled[labelled["text"] != ""])
