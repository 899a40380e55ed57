"""Make the README readable on a package page, where relative links lead nowhere.

The repository's address is one setting in pyproject.toml. With it, links and images become absolute; without it, links
become plain text and images are left out.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|mailto:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Set `readme` of the distribution's metadata."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = rewrite_links(text, self.config.get("repository", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def rewrite_links(text: str, repository: str) -> str:
    """Return Markdown whose relative links point into a repository, or are plain text if there is no address."""
    base = repository.rstrip("/")

    def rewrite(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if not base:
            return "" if image else label
        return f"{image}[{label}]({base}/{'raw' if image else 'blob'}/main/{target})"

    return LINK.sub(rewrite, text)
