// Dimensions of arguments that torch._dynamo.mark_dynamic has marked. PyTorch keeps the marks on the Python objects of tensors.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "shim.h"

namespace torchtpu {
namespace {

bool apply_marks(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDevice) return false;
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  if (!py::hasattr(object, "_dynamo_dynamic_indices")) return false;
  return py::module_::import("torchtpu.tpu.sizes").attr("apply_marks")(object).cast<bool>();
}

}  // namespace

// Makes programs take the marked sizes of the tensors as inputs. Returns whether the key of a call on them has changed.
bool apply_marks(at::ArrayRef<c10::IValue> arguments) {
  py::gil_scoped_acquire gil;
  bool changed = false;
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      changed |= apply_marks(value.toTensor());
    } else if (value.isTensorList()) {
      for (const c10::IValue& item : value.toListRef()) changed |= apply_marks(item.toTensor());
    }
  }
  return changed;
}

}  // namespace torchtpu
