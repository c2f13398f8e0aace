"""Lightning's package, whose name depends on how it was installed."""

from __future__ import annotations

from typing import Any

try:
    from lightning import fabric as _fabric
    from lightning import pytorch as _pytorch
except ModuleNotFoundError:
    import lightning_fabric as _fabric
    import pytorch_lightning as _pytorch

fabric: Any = _fabric
pytorch: Any = _pytorch

MisconfigurationException: type[Exception] = fabric.utilities.exceptions.MisconfigurationException
