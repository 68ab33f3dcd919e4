"""Pictures and reports. matplotlib (`pip install 'horosphere[plots]'`) is imported when the first one is drawn."""

from horosphere.plots.comparison import draw_comparison
from horosphere.plots.disk import draw_disk, geodesic_arc, layout
from horosphere.plots.points import chart_of, draw_points
from horosphere.plots.report import Report
from horosphere.plots.sphere import draw_sphere, great_arc, on_a_sphere

__all__ = [
    "Report",
    "chart_of",
    "draw_comparison",
    "draw_disk",
    "draw_points",
    "draw_sphere",
    "geodesic_arc",
    "great_arc",
    "layout",
    "on_a_sphere",
]
