"""What a package index shows of this package: its readme as the long description, and where the project lives.

The address is no part of the tree: whoever publishes names it, FENCEHOLD_PROJECT_URL=https://forge.example/owner/fencehold,
and then the package has project URLs and the readme's links lead there. Without it there are none, and none is made up.
"""

import os
import re
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "FENCEHOLD_PROJECT_URL"
PAGES = {"Documentation": "docs/", "Changelog": "CHANGELOG.md"}
LOCAL_LINK = re.compile(r"\]\((?!\w+://|#)([^)]+)\)")


class PackagePage(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        address = os.environ.get(VARIABLE, "").rstrip("/")
        if address:
            check(address)
            readme = LOCAL_LINK.sub(lambda link: f"]({address}/blob/HEAD/{link[1]})", readme)
            pages = {name: f"{address}/blob/HEAD/{path}" for name, path in PAGES.items()}
            metadata["urls"] = {"Source": address, **pages}
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def check(address: str) -> None:
    """It is published: nothing but a public page, and nobody's password."""
    if not re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)*", address):
        raise ValueError(f"{VARIABLE} must be an https address without user, query and blanks")
