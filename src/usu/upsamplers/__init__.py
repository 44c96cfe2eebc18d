"""Every way to upsample, as a value with a name and the guarantees it declares."""

from usu.upsamplers.built_in import BUILT_IN, Filter, Redistribution, Upsampler, by_name, guarantee_table

__all__ = ["BUILT_IN", "Filter", "Redistribution", "Upsampler", "by_name", "guarantee_table"]
