"""Small sets of pictures to read: colours are classes, so that anything that learns can learn them."""

import numpy as np

COLOURS = np.array([[220, 40, 40], [40, 220, 40], [40, 40, 220], [220, 220, 40]], dtype=np.float64)


def pixels(count, size=8, classes=4, seed=0):
    """Noisy squares of one colour a class.   -> (N, size, size, 3) uint8, (N,)"""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    images = COLOURS[labels][:, None, None] + 20 * random.standard_normal((count, size, size, 3))
    return images.clip(0, 255).astype(np.uint8), labels


def write_npz(path, train=48, test=16, size=8, **more):
    (a, b), (c, d) = pixels(train, size), pixels(test, size, seed=1)
    np.savez(path, **{"train_images": a, "train_labels": b, "test_images": c, "test_labels": d, **more})
    return str(path)


def write_folder(path, names, each=2, size=8):
    """Class folders of PNGs, each picture of another colour."""
    from PIL import Image

    for number, name in enumerate(names):
        (path / name).mkdir(parents=True)
        for i, image in enumerate(pixels(each, size, seed=number)[0]):
            Image.fromarray(image).save(path / name / f"{i}.png")
    return str(path)
