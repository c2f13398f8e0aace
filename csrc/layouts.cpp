// Sparse tensors (COO and the compressed layouts), and nested tensors of the strided layout (those of the jagged
// layout are a Python class). The core decides which of PyTorch's kernels are used on this device, and which
// operators python/torchtpu/operators/layouts.py calls.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "shim.h"

// PyTorch's header of this function for each device is not installed with it.
namespace at::native {
DECLARE_DISPATCH(at::Tensor (*)(const at::Tensor&, c10::IntArrayRef), flatten_indices_stub)
}  // namespace at::native

namespace torchtpu {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

void use_python(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);

// Python refuses the operators for which PyTorch has no sparse kernel. Registering this for all operators takes
// milliseconds, which is too long for an import, so it is done at the first call.
void register_fallbacks() {
  static const bool done = [] {
    for (const DispatchKey key : {DispatchKey::SparsePrivateUse1, DispatchKey::SparseCsrPrivateUse1}) {
      auto* library = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
      library->fallback(torch::CppFunction::makeFromBoxedFunction<&use_python>());
    }
    return true;
  }();
  (void)done;
}

// PyTorch allocates the parts of such a tensor on the current device.
c10::DeviceGuard guard(const OperatorHandle& op, const torch::jit::Stack& stack) {
  register_fallbacks();
  return c10::DeviceGuard(device_at(device_of(torch::jit::last(stack, op.schema().arguments().size()))));
}

template <DispatchKey key>
void use_pytorchs(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto here = guard(op, *stack);
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

void use_python(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto here = guard(op, *stack);
  call_sparse(op, stack);
}

// Registered for the life of the process: the handle that would unregister it is leaked.
template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* kernel>
void give(const OperatorHandle& op, DispatchKey key) {
  new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key, c10::KernelFunction::makeFromBoxedFunction<kernel>(), std::nullopt, nullptr, "torchtpu"));
}

// If PyTorch's CPU has a kernel of an operator for such tensors (key `model`), registers the kernel for the device's
// `key`.
template <DispatchKey model>
void register_for(const OperatorHandle& op, const std::string& name, TtLayout layout, DispatchKey key) {
  if (!op.hasKernelForDispatchKey(model)) return;
  switch (tt_owner_of_kernel(layout, name.c_str())) {
    case TT_PYTORCH: return give<&use_pytorchs<model>>(op, key);
    case TT_PYTHON: return give<&use_python>(op, key);
    case TT_OTHER: return;
  }
}

// The row-major positions of coordinates, given by column. PyTorch compares them to check that a tensor is coalesced. Its
// at::sparse::flatten_indices asks this function.
at::Tensor flatten_indices(const at::Tensor& indices, c10::IntArrayRef size) {
  at::Tensor positions = at::zeros({indices.size(1)}, indices.options());
  for (size_t dim = 0; dim < size.size(); ++dim) {
    positions = positions.mul(size[dim]).add(indices.select(0, static_cast<int64_t>(dim)));
  }
  return positions;
}

}  // namespace

void register_layouts() {
  at::native::flatten_indices_stub.set_privateuse1_dispatch_ptr(&flatten_indices);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& full_name : dispatcher.getAllOpNames()) {
    if (!full_name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findSchema(full_name);
    if (!op.has_value()) continue;
    const std::string name = short_name(op->schema());
    register_for<DispatchKey::CPU>(*op, name, TT_DENSE, DispatchKey::PrivateUse1);
    register_for<DispatchKey::SparseCPU>(*op, name, TT_COO, DispatchKey::SparsePrivateUse1);
    register_for<DispatchKey::SparseCsrCPU>(*op, name, TT_COMPRESSED, DispatchKey::SparseCsrPrivateUse1);
    register_for<DispatchKey::NestedTensorCPU>(*op, name, TT_NESTED, DispatchKey::NestedTensorPrivateUse1);
  }
}

}  // namespace torchtpu
