"""Style transfer: pixels and back, which layers are looked at, Gram matrices, total variation, the loss."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from horosphere.data.photographs import read_photograph
from horosphere.models.style import (
    BackboneTrunk,
    Losses,
    Picture,
    Seen,
    StyleConfig,
    StyleLoss,
    VGGTrunk,
    gram,
    layers_of_vgg,
    restored,
    standardised,
    variation,
)

torchvision = pytest.importorskip("torchvision", reason="its VGG-19 is looked through")


@pytest.fixture(scope="module")
def features():
    """VGG-19's, as torchvision has them; the dense layers behind them are large, and nobody looks at them."""
    from torchvision.models.vgg import cfgs, make_layers

    torch.manual_seed(0)
    return make_layers(cfgs["E"])


def test_pixels_are_standardised_as_torchvision_does_and_come_back():
    from torchvision.transforms.v2.functional import normalize

    x = torch.rand(2, 3, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(standardised(x), normalize(x, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    torch.testing.assert_close(restored(standardised(x)), x, rtol=0, atol=1e-15)


def test_a_picture_comes_out_as_it_went_in_and_stays_one():
    pixels = torch.randint(0, 256, (1, 3, 7, 5), dtype=torch.uint8)
    picture = Picture(pixels.float() / 255)
    assert torch.equal(picture.pixels(), pixels[0].permute(1, 2, 0))
    with torch.no_grad():
        picture.x += 100 * torch.randn(1, 3, 7, 5)
    picture.after_step()
    colours = restored(picture())
    assert colours.min().item() == pytest.approx(0, abs=1e-6)
    assert colours.max().item() == pytest.approx(1, abs=1e-6)


def test_the_layers_of_vgg_19_have_the_names_of_the_paper(features):
    places = layers_of_vgg(features)
    counts = [sum(name.startswith(f"conv{block}_") for name in places) for block in range(1, 6)]
    assert counts == [2, 2, 4, 4, 4]
    assert all(isinstance(features[place], nn.Conv2d) for place in places.values())
    style = [places[f"conv{block}_1"] for block in range(1, 6)]
    assert (style, places["conv4_4"]) == ([0, 5, 10, 19, 28], 25)  # d2l's numbers


def test_what_is_looked_at_are_outputs_of_convolutions_before_their_relu(features):
    x, outputs = torch.randn(1, 3, 32, 48), {}
    hooks = [
        features[place].register_forward_hook(lambda _, __, out, place=place: outputs.update({place: out.clone()}))
        for place in (0, 5, 10, 19, 25, 28)
    ]
    features(x)
    for hook in hooks:
        hook.remove()
    seen = VGGTrunk(features)(x)
    assert torch.equal(seen.content, outputs[25])
    assert all(torch.equal(maps, outputs[place]) for maps, place in zip(seen.style, (0, 5, 10, 19, 28), strict=True))
    assert min(maps.min() for maps in seen.style) < 0  # torchvision's relu would have written over them


def test_of_a_backbone_the_levels_of_its_pyramid_are_looked_at():
    network = torchvision.models.resnet18().eval()
    x = torch.randn(1, 3, 64, 64)
    stem = network.maxpool(network.relu(network.bn1(network.conv1(x))))
    levels = [stem := stage(stem) for stage in (network.layer1, network.layer2, network.layer3, network.layer4)]
    seen = BackboneTrunk(network)(x)
    assert torch.equal(seen.content, levels[2])
    assert all(torch.equal(a, b) for a, b in zip(seen.style, levels, strict=True))
    assert not any(p.requires_grad for p in BackboneTrunk(network).parameters())


def test_the_gram_matrix_of_orthonormal_rows_is_the_identity_by_numel():
    rows = torch.linalg.qr(torch.randn(20, 6, dtype=torch.float64)).Q.T  # (6, 20)
    torch.testing.assert_close(gram(rows.view(1, 6, 4, 5))[0], torch.eye(6, dtype=torch.float64) / 120)


def test_a_gram_matrix_forgets_where_things_are():
    maps = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    elsewhere = maps.flatten(2)[..., torch.randperm(20)].view_as(maps)
    torch.testing.assert_close(gram(elsewhere), gram(maps))
    by_hand = torch.stack([torch.einsum("cyx,dyx->cd", x, x) / 60 for x in maps])
    torch.testing.assert_close(gram(maps), by_hand)


def test_total_variation_is_the_sum_by_hand_and_that_of_kornia():
    losses = pytest.importorskip("kornia.losses", reason="its total variation is the oracle")
    pytest.importorskip("skimage", reason="the photograph is scikit-image's")
    camera = torch.from_numpy(read_photograph("builtin:camera")[..., 0]).double() / 255
    down, right = camera.diff(dim=0).abs(), camera.diff(dim=1).abs()
    assert losses.total_variation(camera).item() == pytest.approx((down.sum() + right.sum()).item())
    assert losses.total_variation(camera).item() == pytest.approx(13573.21, abs=5e-3)
    assert variation(camera[None, None]).item() == pytest.approx(((down.mean() + right.mean()) / 2).item())
    colours = torch.rand(2, 3, 6, 7, dtype=torch.float64)
    torch.testing.assert_close(variation(colours), 0.5 * losses.total_variation(colours, reduction="mean").mean())


def one_layer():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 16, 3, padding=1).requires_grad_(False)
    return conv, lambda x: Seen(conv(x), [conv(x)])


def test_the_loss_is_of_the_content_of_one_and_the_style_of_the_other():
    conv, trunk = one_layer()
    content, style, x = (torch.randn(1, 3, *size) for size in ((8, 9), (7, 5), (8, 9)))
    goal = StyleLoss(trunk, content, style, StyleConfig(content_weight=2.0, style_weight=3.0, variation_weight=5.0))
    by_content, by_style = (conv(t).square().mean().sqrt() for t in (content, style))
    parts = goal.parts(x)
    torch.testing.assert_close(parts.content, F.mse_loss(conv(x), conv(content)) / by_content**2)
    torch.testing.assert_close(parts.style, F.mse_loss(gram(conv(x)), gram(conv(style))) / by_style**4)
    torch.testing.assert_close(goal.total(parts), 2 * parts.content + 3 * parts.style + 5 * parts.variation)
    assert goal.parts(content).content == 0 < goal.parts(content).style
    assert StyleLoss(trunk, style, style, StyleConfig()).parts(style).style < 1e-12


def test_weights_of_a_network_may_have_any_scale():
    conv, trunk = one_layer()
    content, style, x = (torch.randn(1, 3, 8, 8) for _ in range(3))
    before = StyleLoss(trunk, content, style, StyleConfig()).parts(x)
    with torch.no_grad():
        conv.weight.mul_(1e-3)
        conv.bias.mul_(1e-3)
    torch.testing.assert_close(StyleLoss(trunk, content, style, StyleConfig()).parts(x), before, rtol=1e-4, atol=1e-9)


def test_maps_that_are_zero_everywhere_do_no_harm():
    nothing = torch.zeros(1, 3, 4, 4)
    goal = StyleLoss(lambda x: Seen(0 * x, [0 * x]), nothing, nothing, StyleConfig())
    assert goal.parts(nothing) == Losses(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(0.0))


def test_with_content_alone_the_picture_comes_back():
    _, trunk = one_layer()
    wanted = torch.rand(1, 3, 12, 12)
    goal = StyleLoss(trunk, standardised(wanted), standardised(wanted), StyleConfig(style_weight=0, variation_weight=0))
    picture = Picture(torch.rand(1, 3, 12, 12))
    optimizer = torch.optim.Adam(picture.parameters(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        goal.total(goal.parts(picture())).backward()
        optimizer.step()
        picture.after_step()
    assert (restored(picture()) - wanted).abs().max() < 0.01
