"""How a name becomes a model: its weights, its preprocessing, its classes and the layer to look at."""

from usu.models.load import load
from usu.models.loaded import Loaded, imagenet_classes, resolve_target
from usu.models.preparation import Geometry, Preparation, place

__all__ = ["Geometry", "Loaded", "Preparation", "imagenet_classes", "load", "place", "resolve_target"]
