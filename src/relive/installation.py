"""The folder that relive is installed in; its own frames, files and warnings are told apart from the user's by it."""

import os

PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
