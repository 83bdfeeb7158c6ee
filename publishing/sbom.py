"""
Part of each build of the wheel: writes what the wheel is, and what it needs, into ``.dist-info/sboms/`` (PEP 770).

The list is CycloneDX 1.7. The wheel contains nothing of others, so everything beside aiolock itself is external: it is
named with the versions that are accepted, and the installer chooses one. The same metadata gives the same bytes.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.core import ProjectMetadata
from packaging.requirements import Requirement
from packaging.version import Version

_REFERENCES = {
    "source": "vcs",
    "issues": "issue-tracker",
    "documentation": "documentation",
    "changelog": "release-notes",
}


class SbomHook(BuildHookInterface):
    """Hatchling calls it before and after each build of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the list, and name it to the build."""
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name, f"{self.metadata.core.name}.cdx.json")
        path.write_text(json.dumps(bill_of(self.metadata), indent=2) + "\n", "utf-8")
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel has its copy."""
        self._folder.cleanup()


def bill_of(metadata: ProjectMetadata) -> dict[str, Any]:
    """The list for a project with that *metadata*."""
    core = metadata.core
    needed = [_external(each, "required") for each in core.dependencies]
    known = {each["bom-ref"] for each in needed}
    extra = [_external(each, "optional") for group in core.optional_dependencies.values() for each in group]
    optional = [each for each in extra if each["bom-ref"] not in known]
    us = f"pkg:pypi/{core.name}@{metadata.version}"
    component = {
        "type": "library",
        "bom-ref": us,
        "name": core.name,
        "version": metadata.version,
        "description": core.description,
        "licenses": [{"license": {"id": core.license_expression}}],
        "purl": us,
        "externalReferences": [
            {"type": _REFERENCES.get(label.lower(), "website"), "url": url} for label, url in core.urls.items()
        ],
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.7.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": component},
        "components": needed + optional,
        "dependencies": [{"ref": us, "dependsOn": [each["bom-ref"] for each in needed + optional]}],
    }


def _external(dependency: str, scope: str) -> dict[str, Any]:
    """A component that the wheel asks for and does not contain."""
    requirement = Requirement(dependency)
    purl = f"pkg:pypi/{requirement.name}"
    bounds = sorted(requirement.specifier, key=lambda each: Version(each.version))
    versions = {"versionRange": "vers:pypi/" + "|".join(map(str, bounds))} if bounds else {}
    return {
        "type": "library",
        "bom-ref": purl,
        "name": requirement.name,
        "scope": scope,
        "isExternal": True,
        **versions,
        "purl": purl,
    }
