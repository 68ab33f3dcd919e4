"""Any size of pictures is answered pixel by pixel, and ignored pixels teach nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.detection import mask_rcnn
from horosphere.models.segmentation import FCN, FCNConfig, SemanticFPN, bilinear_kernel, segmentation_loss
from horosphere.optim import param_groups
from tests.models.tiny_backbones import PLAIN, STAGED, hcformer, models, timm_vit, torchvision_swin


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


@pytest.mark.parametrize("build", [*STAGED, *PLAIN])
@pytest.mark.parametrize("size", [(64, 64), (45, 71), (7, 130)])
def test_every_pixel_has_its_logits_at_any_size(build, size):
    model = SemanticFPN(build(), 3, width=8).eval()
    logits = model(torch.randn(1, 3, *size))
    assert logits.shape == (1, 3, *size)
    assert logits.isfinite().all()


@pytest.mark.parametrize("build", [hcformer, torchvision_swin, timm_vit])
def test_every_part_learns(build):
    model = SemanticFPN(build(), 3, width=8).train()
    segmentation_loss(model(torch.randn(2, 3, 64, 64)), torch.randint(3, (2, 64, 64)), -1).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("width", [8, 36, 40, 256])
def test_a_batch_is_answered_as_its_rows_are_alone_also_on_maps_of_one_place(width):
    """The coarsest map of 32 pixels is one place: whatever is normed there needs more than one channel."""
    model = SemanticFPN(hcformer(), 3, width=width).train()
    x, classes = torch.randn(4, 3, 32, 32), torch.randint(3, (4, 32, 32))
    together = torch.autograd.grad(segmentation_loss(model(x), classes, -1), list(model.parameters()))
    alone = [
        torch.autograd.grad(segmentation_loss(model(x[i : i + 1]), classes[i : i + 1], -1), list(model.parameters()))
        for i in range(4)
    ]
    for whole, *rows in zip(together, *alone, strict=True):
        assert_close(torch.stack(rows).mean(0), whole, rtol=1e-3, atol=1e-5)
    assert min(m.num_channels // m.num_groups for m in model.towers.modules() if isinstance(m, nn.GroupNorm)) >= 4
    assert max(m.num_groups for m in model.towers.modules() if isinstance(m, nn.GroupNorm)) <= 32


def test_patches_of_fourteen_pixels():
    model = SemanticFPN(timm_vit(14), 3, width=8).eval()
    assert model.pyramid.strides == (3.5, 7, 14, 28)
    assert model(torch.randn(1, 3, 50, 61)).shape == (1, 3, 50, 61)
    with pytest.raises(UserError, match="a backbone of stride 14: R-CNNs need powers of 2"):
        mask_rcnn(timm_vit(14), 2, width=8)


def test_the_loss_is_a_mean_over_rows_that_ignored_pixels_do_not_touch():
    logits, classes = torch.randn(4, 3, 5, 6, requires_grad=True), torch.randint(3, (4, 5, 6))
    assert_close(segmentation_loss(logits, classes, -1), F.cross_entropy(logits, classes))
    classes[:2, :, :4] = -1
    whole = segmentation_loss(logits, classes, -1)
    assert_close(
        whole, (segmentation_loss(logits[:1], classes[:1], -1) + 3 * segmentation_loss(logits[1:], classes[1:], -1)) / 4
    )
    whole.backward()
    assert ((logits.grad == 0).all(1) == (classes == -1)).all()
    assert segmentation_loss(logits, torch.full_like(classes, -1), -1) == 0


# -- FCN --------------------------------------------------------------------------------------------------------------


def test_a_classifier_of_places_and_a_transposed_convolution_are_all_of_an_fcn():
    network, x = FCN("resnet18", 21, FCNConfig()), torch.randn(2, 3, 320, 480)
    trunk = nn.Sequential(*list(models.resnet18().children())[:-2])
    trunk.load_state_dict(
        dict(zip(trunk.state_dict(), network.backbone.state_dict().values(), strict=True))
    )  # torchvision's keys lead past its names
    (head,), (up,) = network.heads, network.upsamples
    with torch.no_grad():
        places = trunk(x)
        assert places.shape == (2, 512, 10, 15)
        expected = F.conv_transpose2d(F.conv2d(places, head.weight, head.bias), up.weight, stride=32, padding=16)
        assert expected.shape == (2, 21, 320, 480)
        assert_close(network(x), expected)


def test_upsampling_begins_as_bilinear_interpolation():
    up = nn.ConvTranspose2d(3, 3, 64, 32, 16, bias=False)
    up.weight.data = bilinear_kernel(3, 64)
    x = torch.randn(1, 3, 5, 6)
    expected = F.interpolate(x, scale_factor=32, mode="bilinear", align_corners=False)
    assert_close(up(x)[..., 16:-16, 16:-16], expected[..., 16:-16, 16:-16])  # beyond the last centres: 0, not the edge


def test_finer_maps_add_their_logits_on_the_way_to_the_pixels():
    """FCN-8s: three maps, each classified; twice finer, twice finer, eight times finer."""
    network, x = FCN("resnet18", 4, FCNConfig(skips=2)).eval(), torch.randn(1, 3, 96, 64)
    with torch.no_grad():
        _, fine, middle, coarse = network.backbone.pyramid(x)
        answers = [F.conv2d(m, h.weight, h.bias) for m, h in zip((coarse, middle, fine), network.heads, strict=True)]
        first, second, last = (layer.weight for layer in network.upsamples)
        to_middle = F.conv_transpose2d(answers[0], first, stride=2, padding=1)
        to_fine = F.conv_transpose2d(answers[1] + to_middle, second, stride=2, padding=1)
        expected = F.conv_transpose2d(answers[2] + to_fine, last, stride=8, padding=4)
        assert_close(network(x), expected)


def test_a_backbone_of_one_map_has_nothing_to_skip_to():
    with pytest.raises(UserError, match="skips=1: the backbone has maps of 1 sizes; use a smaller number"):
        FCN(timm_vit(16), 3, FCNConfig(skips=1))


@pytest.mark.parametrize(("geometry", "skips"), [("euclidean", 1), ("lorentz", 0), ("lorentz", 2), ("poincare", 0)])
def test_an_fcn_answers_any_size_and_learns_in_every_part(geometry, skips):
    network = FCN(hcformer(), 4, FCNConfig(geometry=geometry, curvature=0.5, skips=skips))
    logits = network(torch.randn(2, 3, 50, 67))
    assert logits.shape == (2, 4, 50, 67)
    logits.square().mean().backward()
    silent = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not [name for name in silent if not name.startswith("backbone")]
    decayed = {id(p) for p in param_groups(network, 0.1)[0]["params"]}
    assert not any(id(p) in decayed for p in network.upsamples.parameters())
