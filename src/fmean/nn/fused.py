"""What a fused layer adds to PyG's: a `propagate` that hands x and the edges to GenAgg, not the messages."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing

from ..genagg import GenAgg
from ..inputs import may_look
from ..kernels import as_int64, extremes

__all__ = ["Fused"]

# PyG's own propagate for any layer and any input. (Where someone has made a bare MessagePassing(), PyG has written
# one that works for nothing over it.)
_propagate = vars(MessagePassing).get("_orig_propagate", MessagePassing.propagate)


class Fused(MessagePassing):  # type: ignore[misc]
    """Before PyG's layer among the bases of a class: its messages are not made where GenAgg can do without.

    The layer's messages must be xⱼ, or wⱼᵢ·xⱼ with an `edge_weight` w. Whatever is not the plain case, bad input
    included, takes PyG's way, so that the results and the errors are PyG's.
    """

    _messages_are_pygs: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # What PyG puts back when `explain` or `decomposed_layers` changes.
        cls._orig_propagate = cls._jinja_propagate = cls.propagate
        pyg = super()
        cls._messages_are_pygs = all(
            getattr(cls, name) is getattr(pyg, name) for name in ("message", "aggregate", "update")
        )

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Nothing: PyG would write a `propagate` made from a template over that of the class."""

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Tensor:
        x: Any = kwargs.get("x")
        edge_weight = kwargs.get("edge_weight")
        if not (self._is_plain() and _is_pair(x, edge_index) and _is_weight(edge_weight, x[0], edge_index)):
            return _propagate(self, edge_index, size, **kwargs)  # type: ignore[no-any-return]

        if size is None:
            sizes = [None if values is None else values.size(0) for values in x]
        else:
            sizes = list(size)
            for dim, values in enumerate(x):
                if values is not None:
                    self._set_size(sizes, dim, values)
        i, j = (1, 0) if self.flow == "source_to_target" else (0, 1)
        edge_index = as_int64(edge_index)
        ends = edge_index.unbind()
        source, index = ends[j], ends[i]
        if may_look(source.device) and source.numel():
            low, high = extremes(source)
            if low < 0 or high >= x[0].size(0):
                return _propagate(self, edge_index, size, **kwargs)  # type: ignore[no-any-return]
        if edge_weight is not None:
            edge_weight = edge_weight.reshape(-1).to(x[0].dtype)
        # PyG's layers send x[0] along either flow, and take the other side's size where that of i is not known.
        dim_size = sizes[j] if sizes[i] is None else sizes[i]
        return self.aggr_module.neighbours(x[0], source, index, dim_size, edge_weight)  # type: ignore[no-any-return]

    def _is_plain(self) -> bool:
        """Whether nobody has to see the messages on their way into a GenAgg."""
        own = self.__dict__
        return (
            _is_genagg(self.aggr_module)
            and self._messages_are_pygs
            and "message" not in own
            and "aggregate" not in own
            and "update" not in own
            and self.node_dim == -2
            and not self.explain
            and self.decomposed_layers == 1
            and not self._propagate_forward_pre_hooks
            and not self._propagate_forward_hooks
            and not self._message_forward_pre_hooks
            and not self._message_forward_hooks
            and not self._aggregate_forward_pre_hooks
            and not self._aggregate_forward_hooks
        )


def _is_genagg(agg: nn.Module | None) -> bool:
    """Whether `agg.neighbours` does all that a call of `agg` would do."""
    return (
        isinstance(agg, GenAgg)
        and type(agg).forward is GenAgg.forward
        and "forward" not in agg.__dict__
        and not agg._forward_pre_hooks
        and not agg._forward_hooks
        and not agg._backward_pre_hooks
        and not agg._backward_hooks
    )


def _is_pair(x: Any, edge_index: Any) -> bool:
    """Whether x is ``([N, F], None or Tensor)`` and `edge_index` a plain tensor of edges beside it."""
    return (
        isinstance(x, (tuple, list))
        and len(x) == 2
        and isinstance(x[0], Tensor)
        and isinstance(x[1], (Tensor, type(None)))
        and x[0].dim() == 2
        and x[0].is_floating_point()
        and isinstance(edge_index, Tensor)
        and not isinstance(edge_index, EdgeIndex)
        and edge_index.layout == torch.strided
        and edge_index.dim() == 2
        and edge_index.size(0) == 2
        and edge_index.dtype in (torch.int32, torch.int64)
        and edge_index.device == x[0].device
    )


def _is_weight(edge_weight: Any, x: Tensor, edge_index: Tensor) -> bool:
    """Whether there is no weight, or one for each edge, of a type that leaves the messages that of x."""
    return edge_weight is None or (
        isinstance(edge_weight, Tensor)
        and edge_weight.numel() == edge_index.size(1)
        and edge_weight.device == x.device
        and edge_weight.layout == torch.strided
        and torch.promote_types(edge_weight.dtype, x.dtype) == x.dtype
    )
