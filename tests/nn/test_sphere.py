"""The README's layers on the sphere: a network of points learns."""

import torch

from horosphere.geometry import Sphere
from horosphere.nn import Activation, Classifier, Lift, Linear
from horosphere.optim import RiemannianAdam, param_groups


def test_a_network_on_the_sphere_learns():
    torch.manual_seed(0)
    m = Sphere(1.0)
    net = torch.nn.Sequential(Lift(m), Linear(8, 16, m), Activation("relu", m), Classifier(16, 3, m))
    x = torch.randn(256, 8)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    optimizer = RiemannianAdam(param_groups(net), lr=1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert (net(x).argmax(1) == y).float().mean() > 0.95
