"""YAML in which no key stands twice; PyYAML would take the last one and say nothing."""

from collections.abc import Hashable
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # `<<` may stand several times, and its keys give way
            key: Any = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    "while reading a mapping",
                    node.start_mark,
                    f"{key!r} stands twice",
                    key_node.start_mark,
                )
            seen.add(key if isinstance(key, Hashable) else None)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """The document. Raises yaml.YAMLError, which names line and column, also for a key that stands twice."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506  # a safe loader, only stricter
