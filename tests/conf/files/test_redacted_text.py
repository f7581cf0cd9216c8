"""Secrets of storage options are hidden in the text of a job, and nothing else changes."""

from __future__ import annotations

import re

import pytest
import yaml

from singa_dask.conf.files.redacted_text import redact_job
from singa_dask.redaction import HIDDEN


@pytest.mark.parametrize("start", ["", "\ufeff", "---\r\n", "# über 😀\n"])
def test_the_rest_of_a_job_stays_where_secrets_are_hidden(start: str) -> None:
    text = start + "läyer: 'ä😀'\nstorage_options: {key: 'sécret', token: \"x1\"}  # why\nname: ünter\n"
    shown = redact_job(text)
    assert shown == text.replace("'sécret'", f'"{HIDDEN}"').replace('"x1"', f'"{HIDDEN}"')


@pytest.mark.parametrize(
    "text",
    [
        "a: {storage_options: &s3 {secret: hide1}}\nb: {storage_options: {token: hide2}}\nc: {storage_options: *s3}\n",
        "x: &s3 {secret: hide1}\na: {storage_options: *s3}\nb: {storage_options: {<<: *s3, region: eu}}\n",
        "a: {storage_options: {key: !!str &k hide1, secret: *k}}\nb: *k\n",
        "a:\n  storage_options:\n    secret: |\n      hide1\n      hide2\n    token:\n  b: 1\n",
        "a: {storage_options: {secret: {value: hide1, more: [hide2]}}}\n",
        "a: &r {storage_options: {secret: hide1, more: *r}}\n",
    ],
)
def test_secrets_are_hidden_behind_aliases_and_in_blocks(text: str) -> None:
    shown = redact_job(text)
    assert "hide" not in shown and HIDDEN in shown
    if "*r" not in text:  # PyYAML's values hold themselves there, and cannot be compared
        expected = re.sub(r"hide\d", f'"{HIDDEN}"', re.sub(r"\|\s+hide1\s+hide2", "hide1", text))
        assert yaml.safe_load(shown) == yaml.safe_load(expected)


def test_secrets_are_hidden_in_text_of_singas_format() -> None:
    text = """name: "x"  # secret: "seen1"
layer { store_conf {
  storage_options { secret: "hide1" # why
    'hide2'; region: "eu" token: hide3 }
  storage_options < client { key: 'hide\\'4' } > key: "seen2"
  storage_options { token: "hide5" ############################################################
    port: -7 secret: -8 }
} }
"""
    shown = redact_job(text)
    assert shown == (
        text.replace("\"hide1\" # why\n    'hide2'", f'"{HIDDEN}"')
        .replace("hide3", f'"{HIDDEN}"')
        .replace("'hide\\'4'", f'"{HIDDEN}"')
        .replace('"hide5"', f'"{HIDDEN}"')
        .replace("-8", f'"{HIDDEN}"')
    )
