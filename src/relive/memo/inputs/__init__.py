"""What a computation reads besides its arguments: files, folders, settings of libraries, chance, the network."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.memo.inputs.ambient_settings import changed_settings
    from relive.memo.inputs.generator_states import read_generators, which_drew
    from relive.memo.inputs.input_recorder import InputRecorder, adopt_inputs, is_recording
    from relive.memo.inputs.observed_input import ObservedInput, content_of, decode_inputs, encode_inputs, inputs_hash

__getattr__ = lazy_names(__name__)
