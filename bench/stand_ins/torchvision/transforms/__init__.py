"""What scripts do to pictures before they are given to a model; random ones draw from torch, as the real ones do."""

import torch


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, picture):
        for transform in self.transforms:
            picture = transform(picture)
        return picture


class ToTensor:
    def __call__(self, picture):
        return picture.float() / 255 if picture.dtype == torch.uint8 else picture


class Normalize:
    def __init__(self, mean, std, inplace=False):
        self.mean, self.std = torch.as_tensor(mean), torch.as_tensor(std)

    def __call__(self, picture):
        return (picture - self.mean.reshape(-1, 1, 1)) / self.std.reshape(-1, 1, 1)


class Resize:
    def __init__(self, size, interpolation=None):
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def __call__(self, picture):
        return torch.nn.functional.interpolate(picture[None].float(), self.size)[0].to(picture.dtype)


class CenterCrop(Resize):
    pass


class RandomCrop:
    def __init__(self, size, padding=0):
        self.size, self.padding = size, padding

    def __call__(self, picture):
        padded = torch.nn.functional.pad(picture, [self.padding] * 4)
        top, left = torch.randint(0, padded.shape[-1] - self.size + 1, (2,)).tolist()
        return padded[..., top : top + self.size, left : left + self.size]


class RandomHorizontalFlip:
    def __call__(self, picture):
        return picture.flip(-1) if torch.rand(1) < 0.5 else picture


class RandomRotation:
    def __init__(self, degrees):
        self.degrees = degrees

    def __call__(self, picture):
        return picture.roll(int(torch.randint(0, 3, (1,))), -1)


class Pad:
    def __init__(self, padding):
        self.padding = padding

    def __call__(self, picture):
        return torch.nn.functional.pad(picture, [self.padding] * 4)


class Lambda:
    def __init__(self, function):
        self.function = function

    def __call__(self, picture):
        return self.function(picture)
