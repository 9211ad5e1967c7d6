"""Checksums of the original files, as their authors, or the repositories that keep them, give them out."""

from __future__ import annotations

from .places import Original

__all__ = ["CIFAR10", "MNIST", "PLANETOID"]


def _gz(name: str, sha256: str) -> Original:
    return Original(((f"mnist/{name}-ubyte.gz", "sha256", sha256),))


def _bin(name: str, sha256: str, md5: str) -> Original:
    """As in the authors' archive, or packed."""
    return Original(((f"cifar10/{name}.bin.xz", "sha256", sha256), (f"cifar10/{name}.bin", "md5", md5)))


# Images and labels.
MNIST = {
    "train": (
        _gz("train-images-idx3", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        _gz("train-labels-idx1", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ),
    "test": (
        _gz("t10k-images-idx3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        _gz("t10k-labels-idx1", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
}

CIFAR10 = {
    "train": (
        _bin(
            "data_batch_1",
            "d5de7683d3f827a5b44cc75966e019999d0781c69e5bfecaa9de8f927fc9b821",
            "5dd7e06a14cb22eb9f671a540d1b7c25",
        ),
        _bin(
            "data_batch_2",
            "5b187343b57341c2b066ceee964e3481a496136f2460a4ae76f237014b38b69c",
            "5ea93a67294ea407fff1d09f752e9692",
        ),
        _bin(
            "data_batch_3",
            "0ed5710714413aefe35b4428c23d1bac3e7a4450ec6659213de5296fab4d4e84",
            "942cd6a4bcdd0dd3c604fbe906cb4421",
        ),
        _bin(
            "data_batch_4",
            "704bae5cf5360e26e8631f05e3bc75e807e2a040ece7385919eaab8608e48b57",
            "ae636b3ba5c66a11e91e8cb52e771fcb",
        ),
        _bin(
            "data_batch_5",
            "6f7f8d25d795532348c38e7417fc88f91898c2281bbc6ffbf424e9392c1807cf",
            "53f37980c15c3d472c316c40844f3f0d",
        ),
    ),
    "test": (
        _bin(
            "test_batch",
            "6f98fa4aa6bc45118bc106e07a8e07eb403609364ddaca1ee739d9127c68b291",
            "803d5f7f4d78ea53de84dbe85f74fb6d",
        ),
    ),
}

# sha256 of raw/ind.NAME.PART, by PyG's name of the data set and the part.
PLANETOID = {
    "Cora": {
        "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    },
    "CiteSeer": {
        "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    },
    "PubMed": {
        "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    },
}
