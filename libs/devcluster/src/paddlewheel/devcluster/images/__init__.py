"""Container images without a registry: built on a Debian base, stored as archives named by content hash."""

from __future__ import annotations

from paddlewheel.devcluster.images.build import (
    ImageProgress,
    Report,
    archive_path,
    build_images,
    content_tag,
    remove_old_archives,
)
from paddlewheel.devcluster.images.catalog import IMAGES, ON_DEMAND, SERVICES, image_reference
from paddlewheel.devcluster.images.command import REQUIRED_TOOLS

__all__ = [
    "IMAGES",
    "ON_DEMAND",
    "REQUIRED_TOOLS",
    "SERVICES",
    "ImageProgress",
    "Report",
    "archive_path",
    "build_images",
    "content_tag",
    "image_reference",
    "remove_old_archives",
]
