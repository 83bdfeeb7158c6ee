"""A release is refused while it has placeholders that only a maintainer can fill in."""

import pytest
from packaging.metadata import Metadata

from aiolock import __version__
from publishing.dist import DistError, check_release

TAG = f"v{__version__}"
FILLED = {"Source": "https://git.invalid/aiolock"}
CHANGES = f"# Changelog\n\n## [{__version__}] - 2030-01-01\n"


def metadata(urls: dict[str, str], description: str = "A lock.") -> Metadata:
    raw = {"metadata_version": "2.4", "name": "aiolock-redis", "version": __version__}
    return Metadata.from_raw({**raw, "project_urls": urls, "description": description})  # type: ignore[typeddict-item]


def test_a_release_with_everything_filled_in_passes() -> None:
    check_release(metadata(FILLED), TAG, CHANGES)


@pytest.mark.parametrize(
    ("of", "tag", "changes", "message"),
    [
        (metadata(FILLED), "v9.9", CHANGES, f"the tag is v9.9, and the version {__version__}"),
        (metadata({"Issues": "https://aiolock.example/issues"}), TAG, CHANGES, "placeholders: Issues"),
        (metadata(FILLED), TAG, "## [Unreleased]\n", f"no section of {__version__}"),
        (metadata(FILLED, "It is not published yet, so"), TAG, CHANGES, "says that aiolock is not published yet"),
    ],
)
def test_a_release_that_lacks_something_is_refused(of: Metadata, tag: str, changes: str, message: str) -> None:
    with pytest.raises(DistError, match=message):
        check_release(of, tag, changes)
