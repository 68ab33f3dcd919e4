"""Rotary positions. On the hyperboloid (HoPE) they turn the space part and keep the time: rotations are isometries."""

import torch
from torch import Tensor

Angles = tuple[Tensor, Tensor]


def rotary_angles(
    positions: Tensor, dim: int, theta: float = 10000.0, still: int = 0, dtype: torch.dtype = torch.float32
) -> Angles:
    """cos and ±sin of position · frequency, for `rotate`.   (B, T) -> 2 x (B, T, 1, dim)

    Slots i and i + dim/2 are one plane. The first `still` planes do not turn, because slot 0 holds the time.
    The other n planes have the frequencies theta^(-j/n), j = 0 … n-1.
    Computed at each call: a buffer outside the state dict would not survive loading on the meta device.

    >>> cos, sin = rotary_angles(torch.arange(3)[None], dim=4)
    >>> cos.shape, cos[0, 0, 0].tolist()  # position 0 is not turned
    (torch.Size([1, 3, 1, 4]), [1.0, 1.0, 1.0, 1.0])
    """
    turning = dim // 2 - still
    if dim % 2 or turning < 1:
        raise ValueError(f"{dim} rotated dimensions: rotary positions need an even number of at least {2 * still + 2}")
    frequency = theta ** (-torch.arange(turning, device=positions.device, dtype=dtype) / turning)
    frequency = torch.cat((frequency.new_zeros(still), frequency))
    angle = (positions.unsqueeze(-1).to(dtype) * frequency).unsqueeze(-2)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(x: Tensor, angles: Angles | None) -> Tensor:
    """Turn each plane by its angle; without angles, x as it was.   (B, T, H, dim) -> (B, T, H, dim)

    >>> x, angles = torch.tensor([1.0, 0.0]).expand(1, 3, 1, 2), rotary_angles(torch.arange(3)[None], dim=2)
    >>> rotate(x, angles)[0, :, 0].round(decimals=3)  # by 0, 1 and 2 radians
    tensor([[ 1.0000,  0.0000],
            [ 0.5400,  0.8410],
            [-0.4160,  0.9090]])
    """
    if angles is None:
        return x
    cos, sin = angles
    partner = x.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return (x * cos + partner * sin).to(x.dtype)
