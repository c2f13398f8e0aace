// Nested tensors of the strided layout (those of the jagged layout are made of plain tensors in Python). PyTorch's kernels
// for them call operators of the tensor that holds all elements, so they serve any device.
#include <string_view>
#include <unordered_set>

#include <ATen/core/dispatch/Dispatcher.h>

#include "shim.h"

namespace torchtpu {
namespace {

using c10::DispatchKey;

// Those that read memory themselves, or call what does.
const std::unordered_set<std::string_view> kReadMemory = {
    "aten::_native_multi_head_attention", "aten::_nested_sum_backward", "aten::_transform_bias_rescale_qkv",
    "aten::_transformer_encoder_layer_fwd", "aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::sum"};

void use_pytorchs(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::NestedTensorCPU), stack);
}

}  // namespace

void register_nested(const c10::OperatorHandle& op) {
  if (!op.hasKernelForDispatchKey(DispatchKey::NestedTensorCPU) || kReadMemory.contains(op.operator_name().name)) return;
  // Registered for the life of the process: the handle that would undo it is leaked.
  new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), DispatchKey::NestedTensorPrivateUse1,
      c10::KernelFunction::makeFromBoxedFunction<&use_pytorchs>(), std::nullopt, nullptr, "torchtpu"));
}

}  // namespace torchtpu
