"""The images of MNIST and CIFAR10, and how each set's are cut into superpixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from . import checksums
from .places import Original, read

__all__ = ["IMAGES", "Images"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Images:
    """An image set and the numbers of its superpixels.

    Arguments:
        name: Of the set.
        side: Height and width of an image in pixels.
        channels: Colours: 1 (grey) or 3 (RGB).
        most: Superpixels that an image may have at most.
        asked: `n_segments` of the first call of SLIC.
        compactness: Of SLIC.
        files: The original files of the `"train"` and the `"test"` images.
        val: So many of the first training images are the validation set.
    """

    name: str
    side: int
    channels: int
    most: int
    asked: int
    compactness: float
    files: Mapping[str, tuple[Original, ...]]
    val: int = 5000

    def read(self, part: str, raw: str | Path | None = None) -> tuple[Bytes, Bytes]:
        """Images [n, side, side, channels] and labels [n] of `"train"` or `"test"`, from the original files."""
        contents = [np.frombuffer(read(file, raw), np.uint8) for file in self.files[part]]
        if self.channels == 1:  # two files with headers, big-endian, of 16 and 8 bytes
            images, labels = contents[0][16:], contents[1][8:]
            return images.reshape(-1, self.side, self.side, 1), labels
        # records of a label, then all red, all green, all blue
        records = np.concatenate(contents).reshape(-1, 1 + self.channels * self.side**2)
        images = records[:, 1:].reshape(-1, self.channels, self.side, self.side)
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1)), records[:, 0].copy()

    def splits(self, raw: str | Path | None, wanted: list[str]) -> dict[str, tuple[Bytes, Bytes]]:
        """Images and labels of the wanted ones of `"train"`, `"val"` and `"test"`."""
        found = {}
        if "train" in wanted or "val" in wanted:
            images, labels = self.read("train", raw)
            found["train"] = images[self.val :], labels[self.val :]
            found["val"] = images[: self.val], labels[: self.val]
        if "test" in wanted:
            found["test"] = self.read("test", raw)
        return {split: found[split] for split in wanted}


IMAGES = {
    "mnist": Images("mnist", 28, 1, 75, 95, 0.25, checksums.MNIST),
    "cifar10": Images("cifar10", 32, 3, 150, 200, 10.0, checksums.CIFAR10),
}
