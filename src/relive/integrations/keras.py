"""Keras 3: `model.fit(…, callbacks=[ReliveCallback()])` tells its loops and what it logs."""

from __future__ import annotations

from keras.callbacks import Callback

from relive.handsfree.frameworks import keras_callback

ReliveCallback = keras_callback(Callback)
