"""Knowledge about the training data that checkpoints store, to read other records in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from singa_dask.data.codecs.scaling import Scaling
from singa_dask.data.codecs.table_facts import TableFacts


class Learned(NamedTuple):
    """Knowledge about the training data in a checkpoint, by input layer of the training net.

    ``class_types`` has the types of the labels before they became ``class_names``; see `label_type`. ``encodings``
    describes conversions of a layer's values that an estimator makes outside of the net. Only the estimator can predict
    with such a net.
    """

    class_names: dict[str, tuple[str, ...]]
    tables: dict[str, TableFacts]
    scalings: dict[str, Scaling]
    class_types: dict[str, str]
    encodings: dict[str, str]

    @classmethod
    def of(cls, *manifests: Mapping[str, Any]) -> Learned:
        """Merge the knowledge in the manifests of several checkpoints. Later manifests take precedence."""
        return cls(
            {name: tuple(each) for one in manifests for name, each in one.get("class_names", {}).items()},
            {name: TableFacts.from_dict(each) for one in manifests for name, each in one.get("tables", {}).items()},
            {name: Scaling.from_dict(each) for one in manifests for name, each in one.get("scalings", {}).items()},
            {name: str(each) for one in manifests for name, each in one.get("class_types", {}).items()},
            {name: str(each) for one in manifests for name, each in one.get("encodings", {}).items()},
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the non-empty entries for the manifest of a checkpoint."""
        described: dict[str, dict[str, Any]] = {
            "class_names": {layer: list(names) for layer, names in self.class_names.items() if names},
            "tables": {layer: facts.to_dict() for layer, facts in self.tables.items()},
            "scalings": {layer: scaling.to_dict() for layer, scaling in self.scalings.items()},
            "class_types": {layer: each for layer, each in self.class_types.items() if each},
            "encodings": dict(self.encodings),
        }
        return {key: value for key, value in described.items() if value}
