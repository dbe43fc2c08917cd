"""Logged values that are no numbers, for pages: texts, tables, histograms of arrays, and images."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.query.media.array_histograms import read_histograms
    from relive.query.media.image_pixels import read_image
    from relive.query.media.logged_media import MediaTerms, list_media

__getattr__ = lazy_names(__name__)
