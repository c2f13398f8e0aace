// Operators that PyTorch composes of others in a way that has a program for each size. These kernels say the same in
// operators that have one program for all sizes.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_pad_circular_ops.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <algorithm>

#include "shim.h"

namespace torchtpu {
namespace {

using at::Tensor;

Tensor pad_circular_composite(const Tensor& self, c10::SymIntArrayRef pad) {
  // A composite is registered for every device's key.
  return at::_ops::_pad_circular::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), self, pad);
}

// The parts of each dimension that are repeated before and after it, joined to it. PyTorch's composite writes them into
// a new tensor. It also has the error messages.
Tensor pad_circular(const Tensor& self, c10::SymIntArrayRef pad) {
  const int64_t padded = static_cast<int64_t>(pad.size()) / 2;
  const int64_t others = self.dim() - padded;
  if (pad.size() % 2 != 0 || others < 1 || others > 2) return pad_circular_composite(self, pad);
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

struct Windows {
  int64_t dim, size, step;
};

// Whether each element has a place of its own in memory.
bool is_non_overlapping(const Tensor& self) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int64_t i = 0; i < self.dim(); i++) {
    if (self.size(i) > 1) dims.emplace_back(self.stride(i), self.size(i));
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}

// The windows of a dimension that `as_strided` shows, if `unfold` shows them too, as in `stft`.
std::optional<Windows> windows_of(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset) {
  const int64_t rank = self.dim();
  if (static_cast<int64_t>(size.size()) != rank + 1 || size.size() != stride.size() || self.numel() == 0) return {};
  if (offset != self.storage_offset() || !is_non_overlapping(self)) return {};
  std::optional<Windows> found;
  for (int64_t i = 0; i < rank; i++) {
    if (size[i] == self.size(i) && stride[i] == self.stride(i)) continue;
    const int64_t width = size[rank];
    if (found || self.stride(i) < 1 || stride[rank] != self.stride(i) || stride[i] % self.stride(i) != 0) return {};
    const int64_t step = stride[i] / self.stride(i);
    if (step < 1 || width < 1 || width > self.size(i) || size[i] != (self.size(i) - width) / step + 1) return {};
    found = Windows{i, width, step};
  }
  return found;
}

// The gradient of `unfold` is one operator, that of `as_strided` many, with positions that depend on all sizes.
Tensor as_strided(c10::DispatchKeySet keys, const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                  std::optional<c10::SymInt> offset) {
  if (at::GradMode::is_enabled() && self.requires_grad()) {
    const auto sizes = c10::asIntArrayRefSlowOpt(size), strides = c10::asIntArrayRefSlowOpt(stride);
    const auto from = offset ? offset->maybe_as_int() : std::optional<int64_t>(self.storage_offset());
    if (sizes && strides && from) {
      if (const auto windows = windows_of(self, *sizes, *strides, *from)) {
        return self.unfold(windows->dim, windows->size, windows->step);
      }
    }
  }
  // The kernel of PyTorch's autograd is registered for every device's key.
  const auto others = keys.remove(c10::DispatchKey::AutogradPrivateUse1).add(c10::DispatchKey::AutogradOther);
  return at::_ops::as_strided::redispatch(others, self, size, stride, offset);
}

}  // namespace

void register_composites() {
  for (const auto key : {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) {
    auto& m = *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    m.impl("_pad_circular", TORCH_FN(pad_circular));
    if (key == c10::DispatchKey::AutogradPrivateUse1) m.impl("as_strided", TORCH_FN(as_strided));
  }
}

}  // namespace torchtpu
