"""Views of images in batches on the device: every image has its own draw, and nothing waits for the host.

Operations work on uint8 images [b, ch, h, w] and hand uint8 on, because that is where Pillow rounds: what is equal to Pillow
step by step stays so through a whole policy. Inside an operation the arithmetic is float32 or int64. The float tensor for the
network is made once, at the end.
"""

from oneof.data.augment.policies import AutoAugment, RandAugment, autoaugment, randaugment
from oneof.data.augment.views import DATASETS, RECIPES, Views, views

__all__ = ["DATASETS", "RECIPES", "AutoAugment", "RandAugment", "Views", "autoaugment", "randaugment", "views"]
