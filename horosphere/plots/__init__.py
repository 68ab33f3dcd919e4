"""Pictures and reports. matplotlib (`pip install 'horosphere[plots]'`) is imported when the first one is drawn."""

from horosphere.plots.comparison import draw_comparison
from horosphere.plots.disk import draw_disk, geodesic_arc, layout
from horosphere.plots.report import Report

__all__ = ["Report", "draw_comparison", "draw_disk", "geodesic_arc", "layout"]
