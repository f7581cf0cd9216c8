"""Every command of docs/first-hour.md, on small data of each kind, prints what the page shows."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from singa_dask.data.stores import open_store
from tests.contracts.foreign import idx
from tests.data.stores.test_lmdb import datum, write_environment
from tests.ports import free_port
from tests.snippets import ROOT, Block, Session, read_blocks

PAGE = ROOT / "docs" / "first-hour.md"
BLOCKS = read_blocks(PAGE)
COMMANDS = [block for block in BLOCKS if block.language == "sh"]
SHOWN = {block.section: block.text.splitlines() for block in BLOCKS if block.language == "text"}
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ADDRESSES = ("--port 8786", "tcp://localhost:8786")
# the page's own 500 steps take a minute
TEXT = {"train_steps=500": "train_steps=60", "@ step 499": "@ step 59", "done: 500 ": "done: 60 "}
GOLD = ROOT / "tests" / "gold"

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


def digits(n: int, step: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return ``n`` real digits, each ``step``-th row and column of them, and their labels."""
    with open_store(str(ROOT / "data" / "digits" / "train.arrow")) as store:
        records = [store.read_block(block.id) for block in store.blocks]
    pixels = np.concatenate([each["pixel"] for each in records])[:n].reshape(n, 28, 28)
    return pixels[:, ::step, ::step].copy(), np.concatenate([each["label"] for each in records])[:n]


def write_tables(folder: Path) -> None:
    images, labels = digits(1000)
    rows = images.reshape(1000, -1)
    for name, part in (("train", slice(800)), ("test", slice(800, 1000))):
        columns = {"label": labels[part], "pixel": pa.array(list(rows[part]))}
        pyarrow.parquet.write_table(pa.table(columns), folder / f"{name}.parquet")


def write_images(folder: Path) -> None:
    images, labels = digits(1500)
    few = np.concatenate([np.flatnonzero(labels == label)[:80] for label in (0, 1, 4, 7)])
    for i, number in enumerate(few):
        path = folder / "pictures" / ("test" if i % 4 == 3 else "train") / NAMES[labels[number]] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[number]).save(path)
    shutil.copy(next((folder / "pictures/train/seven").iterdir()), folder / "new.png")
    np.savez(folder / "images.npz", images=np.repeat(images[:1000, :, :, None], 3, axis=3), labels=labels[:1000])
    for name, part in (("train", slice(400)), ("test", slice(400, 500))):
        values = [datum(image[None], int(label)) for image, label in zip(images[part], labels[part], strict=True)]
        pairs = ((b"%08d" % i, value) for i, value in enumerate(values))
        write_environment(str(folder / f"mnist_{name}_lmdb"), pairs)


def write_reviews(folder: Path) -> None:
    random = np.random.default_rng(0)
    lines = ["review,opinion"]
    for i in range(600):
        told = (["great", "quick", "kind", "lovely"], ["late", "broken", "rude", "dull"])[i % 2]
        words = [str(random.choice(told if random.random() < 0.5 else ["it", "was", "and", "the"])) for _ in range(8)]
        lines.append(f"{' '.join([told[i % 4], *words])},{('good', 'bad')[i % 2]}")
    (folder / "reviews.csv").write_text("\n".join(lines) + "\n")
    (folder / "new-reviews.csv").write_text("review\ngreat and quick\nlate and broken\n")


def write_mnist(folder: Path) -> None:
    images, labels = digits(1000, step=1)
    (folder / "mnist").mkdir()
    for name, part in (("train", slice(800)), ("t10k", slice(800, 1000))):
        for what, array in (("images-idx3", images[part]), ("labels-idx1", labels[part].astype(np.uint8))):
            (folder / "mnist" / f"{name}-{what}-ubyte.gz").write_bytes(gzip.compress(idx(array)))


def write_singas(folder: Path) -> None:
    """Write jobs and records where SINGA has them."""
    for name in ("mnist", "rbm"):
        (folder / "examples" / name).mkdir(parents=True)
    for name in ("train", "test"):
        shutil.copy(GOLD / "data" / f"small_mnist_{name}.bin", folder / "examples" / "mnist" / f"{name}_data.bin")
    for path in (ROOT / "tests" / "conf" / "files" / "singa" / "chain").glob("*.conf"):
        shutil.copy(path, folder / "examples" / "rbm")
    job = (GOLD / "confs" / "mlp_sgd.conf").read_text().replace('checkpoint_path: "ckpt/mlp_init.bin"', "")
    job = re.sub(r"data/small_mnist_(\w+)\.bin", r"examples/mnist/\1_data.bin", job)
    (folder / "examples" / "mnist" / "job.conf").write_text(job)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Give a directory with data of each kind."""
    folder = tmp_path_factory.mktemp("first-hour")
    (folder / "data").symlink_to(ROOT / "data")
    write_tables(folder)
    write_images(folder)
    write_reviews(folder)
    write_mnist(folder)
    write_singas(folder)
    port = free_port()
    # another scheduler may have that of the page
    runs = (f"--host 127.0.0.1 --port {port}", f"tcp://127.0.0.1:{port}")
    session = Session(folder, {**dict(zip(ADDRESSES, runs, strict=True)), **TEXT})
    try:
        yield session
    finally:
        session.close()


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.section)
def test_the_commands_print_what_the_page_shows(reader: Session, block: Block) -> None:
    said = reader.run(block)
    lines = iter(said.splitlines())
    for shown in SHOWN[block.section]:
        for old, new in TEXT.items():
            shown = shown.replace(old, new)
        pattern = re.escape(shown).replace(re.escape("..."), ".*")
        # in order, with other lines between them
        assert any(re.fullmatch(pattern, line) for line in lines), f"{block}: expected {shown!r} in\n{said}"


def test_first_jobs_take_three_commands_each() -> None:
    assert len(COMMANDS) == len(SHOWN) == 12
    assert all(address in PAGE.read_text() for address in ADDRESSES)
    for block in COMMANDS:
        assert len(block.text.splitlines()) <= 3, block
