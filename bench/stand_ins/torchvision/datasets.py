"""Small data sets of noise, of the shapes that the real ones have."""

import torch


class _Noise(torch.utils.data.Dataset):
    shape, classes = (1, 28, 28), 10

    def __init__(self, root=None, train=True, transform=None, target_transform=None, download=False, **_options):
        drawn = torch.Generator().manual_seed(int(train))
        count = 96 if train else 32
        self.data = torch.randint(0, 256, (count, *self.shape), generator=drawn, dtype=torch.uint8).squeeze(1)
        self.targets = torch.arange(count) % self.classes  # some of each
        self.transform = transform

    # What older scripts call the same.
    train_data = test_data = property(lambda self: self.data)
    train_labels = test_labels = property(lambda self: self.targets)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, at):
        picture = self.data[at].reshape(self.shape)
        return (self.transform(picture) if self.transform else picture), int(self.targets[at])


class MNIST(_Noise):
    pass


class FashionMNIST(_Noise):
    pass


class CIFAR10(_Noise):
    shape = (3, 32, 32)


class CIFAR100(_Noise):
    shape, classes = (3, 32, 32), 100


class FakeData(_Noise):
    def __init__(self, size=96, image_size=(3, 64, 64), num_classes=10, transform=None, **_options):
        self.shape, self.classes = tuple(image_size), num_classes
        super().__init__(transform=transform)


class KMNIST(_Noise):
    pass


class ImageFolder(_Noise):
    shape = (3, 32, 32)
