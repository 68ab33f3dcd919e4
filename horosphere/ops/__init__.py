"""Parameter-free functions of pictures, boxes and points: batched, on CPU and GPU, without a geometry.

Every function here follows one convention. Most quarrels between libraries of this field are about these five things.

pictures    (B, C, H, W), brightness from 0 to 1, fp32 or fp64
points      (..., 2) as (x, y): x to the right, y down, pixel centres at whole numbers, as OpenCV and scikit-image
boxes       (..., 4) as left, top, right, bottom in pixels; pixel i covers [i, i + 1), as `Instances.boxes`
flow        (B, 2, H, W) = (u, v) in pixels, with second(x + u, y + v) ≈ first(x, y)
angles      atan2(g_y, g_x), in radians, from the x axis towards the y axis
borders     border="reflect", kornia's default: the picture is mirrored about its outermost pixels

Functions that kornia and torchvision have are not written again: `docs/classics.md` names them, and tests pin their
conventions. What is here no library has in torch, or has only as Python loops.
"""
