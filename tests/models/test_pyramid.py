"""Any backbone has a pyramid."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.backbones import TimmBackbone, adapt
from horosphere.models.himapper import HiMapper, HiMapperConfig
from horosphere.models.pyramid import Pyramid, SimplePyramid
from horosphere.models.segmentation import SemanticFPN
from tests.models.tiny_backbones import PLAIN, STAGED, hcformer, timm_resnet, timm_vit, torchvision_vit


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


@pytest.mark.parametrize("build", STAGED)
def test_a_pyramid_goes_down_by_two_and_ends_in_the_last_map(build):
    backbone, _ = adapt(build().eval())
    x = torch.randn(2, 3, 64, 96)
    maps = backbone.pyramid(x)
    assert [tuple(m.shape[2:]) for m in maps] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    last = backbone.features(x)[0]
    assert last.shape == maps[-1].shape
    assert_close(maps[-1], last)


@pytest.mark.parametrize("build", PLAIN)
def test_a_plain_transformer_has_one_map_and_gets_four(build):
    backbone, _ = adapt(build().eval())
    x = torch.randn(2, 3, 64, 96)
    (only,) = backbone.pyramid(x)
    assert_close(only, backbone.features(x)[0])
    pyramid = Pyramid(build(), 8)
    assert isinstance(pyramid.simple, SimplePyramid)
    assert [tuple(m.shape[1:]) for m in pyramid(x).values()] == [(8, 16, 24), (8, 8, 12), (8, 4, 6), (8, 2, 3)]


@pytest.mark.parametrize("unknown", ["forward_intermediates", "feature_info"])
def test_a_network_of_timm_that_does_not_name_its_levels_has_one_map(unknown):
    network = timm_resnet().eval()
    network.__class__ = type("Silent", (type(network),), {unknown: property(lambda _: network.no_such_thing)})
    backbone, x = TimmBackbone(network), torch.randn(2, 3, 64, 96)
    (only,) = backbone.pyramid(x)
    assert_close(only, backbone.features(x)[0])


def test_a_transformer_of_torchvision_keeps_its_answers_and_takes_other_sizes():
    model = torchvision_vit().eval()
    x = torch.randn(2, 3, 32, 32)
    nn.init.normal_(model.heads.head.weight)
    expected = model(x)
    backbone, head = adapt(model)
    assert_close(head(backbone.features(x)[1]), expected)
    assert backbone.features(torch.ones(1, 3, 48, 80))[0].shape == (1, 16, 3, 5)
    with torch.no_grad():  # embeddings that tell nothing but the column
        model.encoder.pos_embedding[:, 1:] = torch.tensor([1.0, 3.0, 1.0, 3.0])[None, :, None]
    places = backbone._places(3, 5)
    assert torch.equal(places[:, 0], model.encoder.pos_embedding[:, 0])
    columns = places[0, 1:, 0].unflatten(0, (3, 5))
    assert_close(columns, columns[:1].expand(3, -1))
    assert (columns[0].diff() > 0).all()
    assert_close(columns[0, 2], torch.tensor(2.0))


@pytest.mark.parametrize("build", [*STAGED, *PLAIN])
def test_strides_and_widths_are_found_and_nothing_is_changed_by_looking(build):
    model = build().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pyramid = Pyramid(model, 8, coarser=True)
    after = model.state_dict()  # of some without the classifier
    assert len(after) >= len(before) - 2
    assert all(torch.equal(value, before[name]) for name, value in after.items())  # running means too
    assert all(module.training for module in pyramid.modules())
    assert pyramid.strides == (4, 8, 16, 32)
    assert list(pyramid(torch.randn(2, 3, 64, 64))) == ["0", "1", "2", "3", "pool"]


class OneMap(nn.Module):
    map_width, width = 6, 6

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 8, 8)

    def features(self, x):
        feature_map = self.conv(x)
        return feature_map, feature_map.mean((2, 3))


def test_a_module_with_a_map_alone_will_do():
    model = SemanticFPN(OneMap(), 3, width=8)
    assert model.pyramid.strides == (2, 4, 8, 16)
    assert model(torch.randn(1, 3, 21, 35)).shape == (1, 3, 21, 35)


def test_a_backbone_of_one_size_is_refused_in_one_line():
    with pytest.raises(UserError, match="takes pictures of one size only") as error:
        Pyramid(timm_vit(dynamic_img_size=False, dynamic_img_pad=False), 8)
    assert "\n" not in str(error.value)


def test_names_of_timm_take_any_size():
    pytest.importorskip("timm")
    assert SemanticFPN("timm:test_vit", 3, width=8)(torch.randn(1, 3, 50, 75)).shape == (1, 3, 50, 75)


def test_hi_mapper_takes_the_backbone_of_a_dense_model_and_gives_it_back():
    dense = SemanticFPN(hcformer(), 3, width=8)
    mapper = HiMapper(dense.pyramid.backbone, 4, HiMapperConfig(leaves=8, levels=3, width=16, heads=2)).eval()
    assert mapper(torch.randn(2, 3, 64, 64)).shape == (2, 4)
    assert SemanticFPN(mapper.backbone, 3, width=8).pyramid.backbone is dense.pyramid.backbone
