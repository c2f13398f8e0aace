// Writes at indices: lists of index tensors, whose device may differ from that of the tensor that they index, and
// PyTorch's warning.
#include <algorithm>
#include <string_view>

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

const char* name_in_warning(const std::string& name) {
  const auto base = std::string_view(name).substr(0, name.find('.'));
  if (base == "_index_put_impl_") return "index_put_";
  for (const char* warned_of : {"index_put_", "index_fill_", "masked_fill_"}) {
    if (base == warned_of) return warned_of;
  }
  return nullptr;
}

// The words are PyTorch's.
void warn_of_expanded(const Operator& op, const torch::jit::Stack& stack) {
  const IValue& written = stack[stack.size() - op.kinds.size()];
  if (!overlaps_itself(written.toTensor())) return;
  TORCH_WARN("Use of ", op.warned_of, " on expanded tensors is deprecated. Please clone() the tensor before performing ",
             "this operation. This also applies to advanced indexing e.g. ",
             op.takes_indices ? "tensor[indices] = tensor" : "tensor[mask] = scalar");
}

}  // namespace torchtpu
