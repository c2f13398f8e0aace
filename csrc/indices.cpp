// Lists of index tensors, whose device may differ from the device of the tensor that they index.
#include <algorithm>

#include "shim.h"

namespace torchtpu {
namespace {

using c10::IValue;

bool is_on_cpu(const IValue& value) { return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu(); }

}  // namespace

// PyTorch's kernel writes a tensor on the CPU at indices of any device, and says that it does not read one there.
bool indexes_cpu_tensor(const Operator& op, const torch::jit::Stack& stack) {
  return is_on_cpu(stack[stack.size() - op.kinds.size()]);
}

// PyTorch lets indices of a tensor on the device live on the CPU. They are moved to the device, in place on the stack.
void move_indices(const Operator& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.kinds.size());
  for (size_t i = 0; i < op.kinds.size(); ++i) {
    if (op.kinds[i] != ArgKind::kIndexList || !arguments[i].isList()) continue;
    const auto indices = arguments[i].toListRef();
    if (std::ranges::none_of(indices, is_on_cpu)) continue;
    const auto device = device_at(device_of(arguments));
    c10::List<std::optional<at::Tensor>> moved;
    for (const IValue& index : indices) {
      if (index.isNone() || !index.toTensor().defined()) {
        moved.push_back(std::nullopt);
      } else {
        moved.push_back(index.toTensor().to(device));
      }
    }
    (*stack)[stack->size() - op.kinds.size() + i] = std::move(moved);
  }
}

}  // namespace torchtpu
