// Operators that PyTorch composes of others. Some of its composites have a program for each size: these kernels say the
// same in operators that have one program for all sizes. Others keep PyTorch's composite although they have a row.
#include <ATen/ops/_compute_linear_combination.h>
#include <ATen/ops/_pad_circular_ops.h>
#include <ATen/ops/as_strided_copy_ops.h>
#include <ATen/ops/as_strided_scatter_ops.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <algorithm>

#include "shim.h"

namespace torchtpu {
namespace {

using at::Tensor;

// A composite is registered for every device's key.
constexpr c10::DispatchKeySet kOtherBackend(c10::DispatchKey::CPU);

Tensor pad_circular_composite(const Tensor& self, c10::SymIntArrayRef pad) {
  return at::_ops::_pad_circular::redispatch(kOtherBackend, self, pad);
}

// The parts of each dimension that are repeated before and after it, joined to it. PyTorch's composite writes them into
// a new tensor. It also has the error messages.
Tensor pad_circular(const Tensor& self, c10::SymIntArrayRef pad) {
  const int64_t padded = static_cast<int64_t>(pad.size()) / 2;
  const int64_t others = self.dim() - padded;
  const bool has_symbols = self.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || !c10::asIntArrayRefSlowOpt(pad);
  if (has_symbols || pad.size() % 2 != 0 || others < 1 || others > 2) return pad_circular_composite(self, pad);
  Tensor result = self;
  for (int64_t i = 0; i < padded; i++) {
    const int64_t dim = self.dim() - 1 - i;
    const int64_t size = self.size(dim);
    const int64_t before = pad[2 * i].guard_int(__FILE__, __LINE__);
    const int64_t after = pad[2 * i + 1].guard_int(__FILE__, __LINE__);
    const int64_t start = std::max<int64_t>(-before, 0);
    const int64_t kept = size - start - std::max<int64_t>(-after, 0);
    if (kept < 1 || before > kept || after > kept) return pad_circular_composite(self, pad);
    // Places near the end are counted from it, so that they do not change with the size.
    const auto end = after < 0 ? std::optional<c10::SymInt>(after) : std::nullopt;
    const Tensor whole = kept == size ? result : result.slice_symint(dim, start, end);
    std::vector<Tensor> parts{whole};
    if (before > 0) parts.insert(parts.begin(), result.slice_symint(dim, std::min<int64_t>(after, 0) - before, end));
    if (after > 0) parts.push_back(result.slice_symint(dim, start, start + after));
    result = parts.size() == 1 ? whole : at::cat(parts, dim);
  }
  return result.is_same(self) || result.is_alias_of(self) ? result.clone(at::MemoryFormat::Contiguous) : result.contiguous();
}

// PyTorch's kernels add to the given result.
Tensor& linear_combination_out(const Tensor& input, const Tensor& coefficients, Tensor& out) {
  return out.add_(at::_compute_linear_combination(input, coefficients));
}

// These read and write the memory of a tensor, whose strides a row does not see. PyTorch's composites do so through views.
Tensor strided_copy(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::_ops::as_strided_copy::redispatch(kOtherBackend, self, size, stride, std::move(offset));
}

Tensor strided_scatter(const Tensor& self, const Tensor& source, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                       std::optional<c10::SymInt> offset) {
  return at::_ops::as_strided_scatter::redispatch(kOtherBackend, self, source, size, stride, std::move(offset));
}

}  // namespace

void register_composites() {
  for (const auto key : {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) {
    auto& m = *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    m.impl("_pad_circular", TORCH_FN(pad_circular));
  }
  auto& m = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  m.impl("as_strided_copy", TORCH_FN(strided_copy));
  m.impl("as_strided_scatter", TORCH_FN(strided_scatter));
  m.impl("_compute_linear_combination.out", TORCH_FN(linear_combination_out));
}

}  // namespace torchtpu
