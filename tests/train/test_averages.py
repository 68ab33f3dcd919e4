"""A network and its average: activations are recomputed where the network can, and only in what is trained."""

import pytest
from torch import nn

from horosphere.errors import UserError
from horosphere.train.averages import Averaged


class Recomputing(nn.Linear):
    recomputes = False

    def set_grad_checkpointing(self, enable=True):
        self.recomputes = enable


@pytest.mark.parametrize("decay", [None, 0.9])
def test_the_network_recomputes_its_activations_and_its_average_has_none(decay):
    model = Averaged(Recomputing(2, 2), decay)
    assert not model.network.recomputes
    model.gradient_checkpointing_enable()
    assert model.network.recomputes
    assert model.average is None or not model.average.recomputes


def test_a_network_that_cannot_recompute_is_named():
    with pytest.raises(UserError, match="checkpointing=true: Linear cannot recompute its activations"):
        Averaged(nn.Linear(2, 2), None).gradient_checkpointing_enable()
