"""Keras 3: `model.fit(…, callbacks=[ReliveCallback()])` records its loops and metrics."""

from __future__ import annotations

from keras.callbacks import Callback

from relive.handsfree.frameworks import keras_callback

ReliveCallback = keras_callback(Callback)
