"""How a name becomes a model: its weights, its preprocessing, its classes and the layer to look at."""

from usu.models.load import Loaded, imagenet_classes, load, resolve_target
from usu.models.pictures import Geometry, Preparation, place

__all__ = ["Geometry", "Loaded", "Preparation", "imagenet_classes", "load", "place", "resolve_target"]
