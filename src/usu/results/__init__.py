"""What comes out, with its provenance: frozen, able to show itself and to write itself to a folder."""

from usu.results.folder import saved_manifest, written
from usu.results.result import Explanation, Upsampled, load

__all__ = ["Explanation", "Upsampled", "load", "saved_manifest", "written"]
