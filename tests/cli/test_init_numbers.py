"""``init`` on columns as people write them: money, percent, dates, flags and gaps, in five locales."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from singa_dask.conf import load
from singa_dask.inputs.open_records import open_records
from singa_dask.inputs.store_conf import StoreConf
from tests.cli.conftest import Call, noted

N = 200
RANDOM = np.random.default_rng(0)
CENTS = RANDOM.lognormal(13, 2, N).astype(int)
COUNTS = RANDOM.integers(1_000, 1_000_000, N)
SHARES = RANDOM.integers(0, 1000, N)
AGES = RANDOM.integers(18, 80, N)
FLAGS = RANDOM.integers(0, 2, N)
KIND = np.where(np.arange(N) % 2, "a", "b")
NARROW, NO_BREAK = "\u202f", "\u00a0"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def western(whole: int, mark: str) -> str:
    return f"{whole:,}".replace(",", mark)


def indian(whole: int, mark: str) -> str:
    head, tail = str(whole)[:-3], str(whole)[-3:]
    pairs = [head[max(i - 2, 0) : i] for i in range(len(head), 0, -2)][::-1]
    return mark.join([*pairs, tail])


class Locale(NamedTuple):
    """How a locale writes numbers, money, percent, dates, no and yes, and no value; and the separator of its CSV."""

    group: Callable[[int, str], str]
    thousands: str
    decimal: str
    money: str
    percent: str
    date: str
    flags: tuple[str, str]
    words: tuple[str, str]
    separator: str = ";"


EURO = f"{{}}{NO_BREAK}\u20ac"
LOCALES = {
    "en-US": Locale(western, ",", ".", "${}", "{}%", "%m/%d/%Y", ("No", "Yes"), ("unknown", "none"), ","),
    "en-IN": Locale(indian, ",", ".", "\u20b9{}", "{}%", "%d/%m/%Y", ("N", "Y"), ("n.a.", "-"), ","),
    "de-DE": Locale(western, ".", ",", EURO, f"{{}}{NO_BREAK}%", "%d.%m.%Y", ("nein", "ja"), ("unbekannt", "k.A.")),
    "fr-FR": Locale(western, NARROW, ",", EURO, f"{{}}{NARROW}%", "%d/%m/%Y", ("non", "oui"), ("inconnu", "n.c.")),
    "de-CH": Locale(western, "\u2019", ".", "CHF {}", "{}%", "%d.%m.%Y", ("false", "true"), ("unbekannt", "--")),
}
# what can be read in two ways, or as a word or a missing value
REFUSED = {("en-US", "count"), ("de-DE", "count"), *((locale, "age") for locale in LOCALES)}


def made(by: Locale) -> dict[str, tuple[Any, np.ndarray]]:
    """Return by column what is written, and the numbers that it means."""

    def amount(cents: int) -> str:
        return f"{by.group(cents // 100, by.thousands)}{by.decimal}{cents % 100:02d}"

    gone = np.arange(N) % 25 == 3
    signs = np.where(np.arange(N) % 3, 1, -1)
    amounts, percents = list(map(amount, CENTS)), [f"{n // 10}{by.decimal}{n % 10}" for n in SHARES]
    owed = [f"({text})" if sign < 0 else text for text, sign in zip(amounts, signs, strict=True)]
    return {
        "money": (list(map(by.money.format, amounts)), CENTS / 100),
        "amount": (amounts, CENTS / 100),
        "count": ([by.group(n, by.thousands) for n in COUNTS], COUNTS),
        "percent": (list(map(by.percent.format, percents)), SHARES / 10),
        "balance": (owed, signs * CENTS / 100),
        "age": ([by.words[i % 2] if gone[i] else str(AGES[i]) for i in range(N)], np.where(gone, -1, AGES)),
        "flag": ([by.flags[i] for i in FLAGS], FLAGS),
        "day": (pd.date_range("2024-01-01", periods=N).strftime(by.date), np.empty(0)),
    }


def read(name: str, url: str = "x.csv") -> np.ndarray:
    """Return the values of a column as the job of ``init`` reads them, -1 for none, in the order of a file."""
    conf = store_conf().model_copy(update={"path": url, "missing": -1.0, "split": None})
    with open_records(conf, "table") as store:
        assert store.table_facts is not None
        at = store.table_facts.names.index(name)
        return np.concatenate([store.read_block(i)["data"][:, at] for i in range(len(store.blocks))])


def store_conf() -> StoreConf:
    conf = load("job.yaml").job.neuralnet.layer[0].given_block(StoreConf)
    assert conf is not None
    return conf


def init(call: Call, *arguments: str, refused: bool = False) -> str:
    result = call("init", *arguments, "--label", "kind", "--test-split", "0", "--overwrite")
    assert result.exit_code == refused, result.stderr
    return result.stderr


@pytest.mark.parametrize("column", ["money", "amount", "count", "percent", "balance", "age", "flag", "day"])
@pytest.mark.parametrize("locale", LOCALES)
def test_a_column_is_read_and_said_or_refused_with_what_reads_it(call: Call, locale: str, column: str) -> None:
    by = LOCALES[locale]
    texts, numbers = made(by)[column]
    pd.DataFrame({"x": AGES % 7, column: texts, "kind": KIND}).to_csv("x.csv", index=False, sep=by.separator)
    options: list[str] = []
    if (locale, column) in REFUSED:
        # the whole option is in the message
        said = init(call, "x.csv", refused=True)
        found = re.findall(r"--(?:na-values|thousands|decimal) (?:'[^']+'|\S+)", said)
        options = next(shlex.split(each) for each in found if column == "age" or each == f"--thousands {by.thousands}")
    said = init(call, "x.csv", *options)
    lines = [line for line in noted(said) if line.startswith(f"{column} ")]
    if column == "day":
        order = f"day_first {by.date.startswith('%d')}"
        assert lines == [f"day {N} dates such as {texts[0]!r} read as weekday ({order})"]
        weekdays = pd.date_range("2024-01-01", periods=N).day_of_week
        for i in range(7):
            np.testing.assert_array_equal(read(f"day.weekday={i}"), weekdays == i)
        return
    if column == "flag":
        # a boolean, or one value of two categories
        column = "flag" if by.flags == ("false", "true") else f"flag={by.flags[1]}"
    else:
        n = N if column != "age" else int((numbers < 0).sum())
        assert len(lines) == 1
        assert f"{column} {n} {'no value' if column == 'age' else 'numbers written as '}" in lines[0]
    np.testing.assert_array_equal(read(column), numbers.astype(np.float32))


@pytest.mark.parametrize("form", ["parquet", "jsonl", "json", "xlsx"])
def test_other_formats(call: Call, form: str) -> None:
    columns = made(LOCALES["en-US"])
    frame = pd.DataFrame({name: texts for name, (texts, _) in columns.items()}).assign(kind=KIND)
    if form == "parquet":
        frame.to_parquet("x.parquet")
    elif form == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel("x.xlsx", index=False)
    else:
        # numbers among words
        ages = [int(age) if age.isdigit() else age for age in frame["age"]]
        rows = [{**row, "age": age} for row, age in zip(frame.to_dict("records"), ages, strict=True)]
        text = "\n".join(map(json.dumps, rows)) if form == "jsonl" else json.dumps(rows)
        Path(f"x.{form}").write_text(text)
    given: list[str] = []
    # one word after the other in JSON lines
    while "--na-values" in (said := call("init", f"x.{form}", "--label", "kind", "--thousands", ",", *given).stderr):
        option = re.findall(r"--na-values (?:'[^']+'|\S+)", said)
        assert shlex.split(option[0]) != given
        given = shlex.split(option[0])
    init(call, f"x.{form}", "--thousands", ",", *given)
    for name in ("money", "amount", "count", "percent", "balance", "age"):
        np.testing.assert_array_equal(read(name, f"x.{form}"), columns[name][1].astype(np.float32))


def test_what_is_refused_is_refused_at_once(call: Call) -> None:
    ages = ["unknown" if i % 50 == 7 else "-" if i % 50 == 9 else str(AGES[i]) for i in range(N)]
    sizes = ["?" if i == 5 else "n.a." if i == 11 else f"{i / 7:.2f}" for i in range(N)]
    table = pd.DataFrame({"age": ages, "size": sizes, "kind": KIND})
    table.to_csv("x.csv", index=False)
    said = init(call, "x.csv", refused=True)
    assert said == (
        "x.csv: column 'age': most values are numbers, but not 'unknown' (4, the first in record 8), '-' (4, the first "
        "in record 10). column 'size': most values are numbers, but not 'n.a.' (1, the first in record 12). "
        "Add --na-values unknown,-,n.a. for missing values, or --drop age,size.\n"
    )
    said = init(call, "x.csv", "--na-values", "unknown,-,n.a.")
    assert noted(said)[1:] == [
        "age 8 no value: '-' (4), 'unknown' (4) the mean of the training data",
        "size 2 no value: '?' (1), 'n.a.' (1) the mean of the training data",
    ]
    # JSON and frames have the word that only CSV takes for a missing value
    assert store_conf().na_values == ["unknown", "-", "n.a.", "?"]
    # pandas reads these columns as texts
    assert list(store_conf().numbers) == ["age", "size"]
    # what was given before stays
    assert "Add --na-values -,unknown,n.a. for" in init(call, "x.csv", "--na-values", "-", refused=True)


@pytest.mark.parametrize("odd", ["\u20ac5.00", "0.05", "1.234,50", "$5.00 x"])
def test_values_of_two_kinds(call: Call, odd: str) -> None:
    texts = [odd if i == 40 else f"${i * 7:,}.50" for i in range(N)]
    pd.DataFrame({"price": texts, "x": AGES, "kind": KIND}).to_csv("x.csv", index=False)
    said = init(call, "x.csv", refused=True)
    assert f"column 'price': most values are numbers, but not {odd!r} (1, the first in record 41). " in said
    assert said.endswith(" Write all values of a column in one way, or add --drop price.\n")


def test_marks_that_no_number_has_are_refused(call: Call) -> None:
    pd.DataFrame({"a": [f"{i},5" for i in range(N)], "kind": KIND}).to_csv("x.csv", index=False, sep=";")
    refused = call("init", "x.csv", "--label", "kind", "--decimal", ".")
    assert refused.exit_code == 2 and "such as '0,5', which --decimal . does not fit" in refused.stderr
    pd.DataFrame({"a": [i + 0.5 for i in range(N)], "kind": KIND}).to_csv("x.csv", index=False)
    refused = call("init", "x.csv", "--label", "kind", "--decimal", ",")
    assert refused.exit_code == 2 and "such as '0.5', which --decimal , does not fit" in refused.stderr


def test_points_between_thousands(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{n:,}".replace(",", ".") for n in [*COUNTS[: N // 2], *range(N - N // 2)]]
    table = pd.DataFrame({"count": texts, "length": [f"{i},5" for i in range(N)], "kind": KIND})
    table.to_csv("x.csv", index=False, sep=";")
    said = init(call, "x.csv", refused=True)
    assert "'count' " in said
    assert said.endswith("; it applies to all such columns.\n")
    init(call, "x.csv", "--decimal", ".")
    np.testing.assert_array_equal(read("count"), np.array(texts, np.float32))
    np.testing.assert_array_equal(read("length"), np.arange(N) + np.float32(0.5))
    wanted = [*COUNTS[: N // 2], *range(N - N // 2)]
    init(call, "x.csv", "--thousands", ".")
    np.testing.assert_array_equal(read("count"), np.array(wanted, np.float32))
    # where nothing else is written so, a point is a decimal one
    table[["count", "kind"]].to_csv("x.csv", index=False)
    said = init(call, "x.csv")
    assert (
        f"warning: count: its points are read as decimal points, as in {texts[0]}. "
        "Pass --thousands . if they separate thousands.\n" in said
    )
    np.testing.assert_array_equal(read("count"), np.array(texts, np.float32))
    # on a terminal it asks
    monkeypatch.setattr("singa_dask.cli.init.command.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr("click.prompt", lambda *_, **__: 2)
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    table.to_csv("x.csv", index=False, sep=";")
    init(call, "x.csv")
    np.testing.assert_array_equal(read("count"), np.array(wanted, np.float32))
    assert "--thousands=." in Path("job.yaml").read_text().splitlines()[0]


def test_points_between_thousands_of_amounts(call: Call) -> None:
    deposits = [618, 1183, 34277, 730][:] * (N // 4)
    texts = [f"{n:,} €".replace(",", ".") for n in deposits]
    pd.DataFrame({"deposit": texts, "rent": CENTS / 100, "kind": KIND}).to_csv("x.csv", index=False)
    said = init(call, "x.csv", refused=True)
    assert "of column 'deposit' 34.277 or 34277? Pass --decimal . for 34.277, or --thousands . for 34277" in said
    init(call, "x.csv", "--thousands", ".")
    np.testing.assert_array_equal(read("deposit"), np.array(deposits, np.float32))
    np.testing.assert_array_equal(read("rent"), (CENTS / 100).astype(np.float32))


def test_numbers_with_the_same_word_behind_them_are_measures(call: Call) -> None:
    area = [f"{n / 10:.1f} m²".replace(".", ",") for n in range(N)]
    names = [f"{n}a" if n % 2 else f"{n}b" for n in range(N)]
    table = pd.DataFrame({"area": area, "house": names, "size": [f"{n % 3} rooms" for n in range(N)], "kind": KIND})
    for url, write in (("x.csv", table.to_csv), ("x.parquet", table.to_parquet)):
        write(url, index=False)
        said = noted(init(call, url))
        assert any(line.startswith(f"area {N} numbers written as") and "unit 'm²'" in line for line in said)
        assert store_conf().features == ["area", "size"]
        np.testing.assert_array_equal(read("area"), (np.arange(N) / 10).astype(np.float32))


def test_codes_and_names_stay(call: Call) -> None:
    """Numbers in strings that have few values, or leading zeros, or words among them, are names outside of CSV."""
    table = pd.DataFrame({"x": AGES, "grade": (np.arange(N) % 5).astype(str), "kind": KIND})
    table["code"] = [f"{i:05d}" for i in range(N)]
    table["ticket"] = [f"A/{i}" if i % 5 else str(i) for i in range(N)]
    table.to_parquet("x.parquet")
    said = init(call, "x.parquet")
    assert store_conf().categories == {"grade": ["0", "1", "2", "3", "4"]}
    assert "code, ticket 400 texts, different in each record left out" in noted(said)
    assert not store_conf().numbers
    # labels are classes, as they are written
    pd.DataFrame({"x": AGES, "kind": np.where(FLAGS, "10%", "20%")}).to_csv("x.csv", index=False)
    assert "2 classes: 10% " in init(call, "x.csv")


def test_compact_dates_order_records(call: Call) -> None:
    days = pd.date_range("2023-01-01", periods=N).strftime("%Y%m%d")
    frame = pd.DataFrame({"x": AGES, "day": days, "amount": 20240000 + AGES, "kind": KIND})
    frame.astype({"day": int}).to_csv("x.csv", index=False)
    frame.to_parquet("x.parquet")
    for url in ("x.csv", "x.parquet"):
        result = call("init", url, "--label", "kind", "--overwrite")
        assert f"day {N} dates such as '20230101" in "".join(noted(result.stderr))
        assert "to test on: the last 40 by day; " in result.stderr
        assert store_conf().features == ["x", "day", "amount"]


def test_marks_that_are_none(call: Call) -> None:
    for option in ("--thousands=;", "--decimal=x"):
        assert "is not one of ',', '.'" in call("init", "x.csv", option).output


def test_targets(call: Call) -> None:
    texts, numbers = made(LOCALES["de-DE"])["money"]
    pd.DataFrame({"x": AGES, "price": texts}).to_csv("x.csv", index=False, sep=";")
    result = call("init", "x.csv", "--target", "price", "--test-split", "0")
    assert result.exit_code == 0, result.stderr
    with open_records(store_conf(), "table") as store:
        np.testing.assert_array_equal(store.read_block(0)["target"][:, 0], numbers.astype(np.float32))


def test_inspect_says_which_columns_are_numbers_as_text(call: Call) -> None:
    pd.DataFrame({"x": AGES, "price": made(LOCALES["en-US"])["money"][0], "label": FLAGS}).to_csv("x.csv", index=False)
    said = call("data", "inspect", "x.csv").stdout
    assert 'To read them, set numbers: {price: {"thousands": ",", "unit": "$"}}' in " ".join(said.split())
    keys = ['numbers={price: {thousands: ",", unit: "$"}}', "features=[x, price]"]
    said = call("data", "inspect", "x.csv", *(word for key in keys for word in ("--option", key))).stdout
    assert "written as text" not in said
    assert f"{CENTS.mean() / 100:.6g}" in said


def test_another_column_with_the_unit_proves_the_marks(call: Call) -> None:
    fees = [[250, 1000, 500][i % 3] for i in range(N)]
    columns = {"fee": [f"${n:,}" for n in fees], "price": [f"${n / 100:,.2f}" for n in CENTS]}
    pd.DataFrame({**columns, "kind": KIND}).to_csv("x.csv", index=False)
    said = noted(init(call, "x.csv"))
    read_as = "read as 1000 (thousands ',', unit '$'), as"
    assert any(line.startswith(f"fee {N} numbers written as '$1,000' {read_as} '$") for line in said)
    np.testing.assert_array_equal(read("fee"), np.array(fees, np.float32))
    # another unit, or columns that prove both, are no proof
    without_unit, comma = [f"{n / 100:,.2f}" for n in CENTS], ["$0,5", "$1,25", "$2,5", "$3,5"] * (N // 4)
    for others in ({"price": without_unit}, {"share": comma}):
        pd.DataFrame({**columns, **others, "kind": KIND}).to_csv("x.csv", index=False)
        assert "is '$1,000' of column 'fee' 1000 or 1?" in init(call, "x.csv", refused=True)


def test_all_questions_are_answered_at_once(call: Call) -> None:
    pd.DataFrame(
        {
            "fee": [["250", "1,000", "500"][i % 3] for i in range(N)],
            "tax": [["1,250", "1,000", "500"][i % 3] for i in range(N)],
            "years": ["unknown" if i % 9 == 0 else str(i) for i in range(N)],
            "kind": KIND,
        }
    ).to_csv("x.csv", index=False)
    said = init(call, "x.csv", refused=True)
    assert "column 'years': most values are numbers, but not 'unknown'" in said
    assert "is '1,000' of column 'fee' 1000 or 1?" in said and "The same holds for tax." in said
    answers = said.rpartition("To answer all at once:\n")[2]
    init(call, "x.csv", *shlex.split(answers))
    np.testing.assert_array_equal(read("tax"), [[1250, 1000, 500][i % 3] for i in range(N)])
    np.testing.assert_array_equal(read("years"), [-1 if i % 9 == 0 else i for i in range(N)])
