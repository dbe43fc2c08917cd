"""The folder of the installed package, which distinguishes relive's own frames and files from the user's."""

import os

PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
