"""All handlers, in the order in which they are asked whether a type is theirs."""

from relive.checkpoint.graph.handlers.arrays import choose_array
from relive.checkpoint.graph.handlers.classes import choose_class_state
from relive.checkpoint.graph.handlers.code import choose_code
from relive.checkpoint.graph.handlers.containers import choose_container
from relive.checkpoint.graph.handlers.folder_state import choose_folder
from relive.checkpoint.graph.handlers.generators import choose_generator
from relive.checkpoint.graph.handlers.iterators import choose_iterator
from relive.checkpoint.graph.handlers.objects import choose_frame, choose_object
from relive.checkpoint.graph.handlers.process_state import choose_process
from relive.checkpoint.graph.handlers.streams import choose_stream
from relive.checkpoint.graph.handlers.torch_objects import choose_torch_object

__all__ = ["CHOOSERS", "choose_class_state"]

CHOOSERS = (
    choose_container, choose_torch_object, choose_array, choose_generator, choose_stream, choose_frame, choose_iterator,
    choose_code, choose_process, choose_folder, choose_object,
)  # fmt: skip
