"""Pictures are not looked at: they are not written either."""


def save_image(picture, path, **_options):
    """Nothing is saved."""


def make_grid(pictures, **_options):
    return pictures
