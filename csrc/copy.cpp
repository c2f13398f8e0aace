// Copies: between host and device, between devices, and (through the table) on one device.
#include <ATen/MemoryOverlap.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/neg.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

using at::Tensor;

bool is_ours(const Tensor& tensor) { return tensor.device().type() == kDevice; }

TtTensor describe(const Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const bool dense = impl.key_set().has(c10::DispatchKey::PrivateUse1) && impl.has_storage();
  const TtTensor described = dense ? torchtpu::describe(impl) : TtTensor{};
  TORCH_CHECK(described.storage != nullptr, "torchtpu: cannot copy a tensor that is not dense, or whose memory is not the device's");
  return described;
}

Tensor host_empty(const Tensor& like) {
  return at::empty(like.sizes(), like.options().device(c10::DeviceType::CPU).pinned_memory(false));
}

// Whether the dense value of `source` can be written directly to `destination`.
bool takes_dense(const Tensor& destination, const Tensor& source) {
  return destination.is_contiguous() && !destination.is_conj() && !destination.is_neg() &&
         destination.scalar_type() == source.scalar_type() &&
         destination.sizes() == source.sizes();
}

// A tensor of the host, with pairs of 4-bit floats as bytes: PyTorch's CPU has no kernel that moves such pairs.
Tensor as_movable(const Tensor& tensor) {
  return tensor.scalar_type() == c10::ScalarType::Float4_e2m1fn_x2 ? tensor.view(at::kByte) : tensor;
}

void host_to_device(const Tensor& destination, const Tensor& source, bool non_blocking) {
  const Tensor given = source.scalar_type() == destination.scalar_type() ? as_movable(source) : source.to(destination.scalar_type());
  const Tensor dense = given.expand(destination.sizes()).contiguous().resolve_conj().resolve_neg();
  const TtTensor target = describe(destination);
  const void* data = dense.const_data_ptr();
  // With non_blocking, the caller must not change pinned memory before the copy is done.
  void* owner = nullptr;
  if (non_blocking && tt_is_pinned(data)) owner = new c10::Storage(dense.storage());
  const NoGil no_gil;
  check(tt_copy_from_host(&target, data, owner, [](void* storage) { delete static_cast<c10::Storage*>(storage); }));
}

void device_to_host(const Tensor& destination, const Tensor& source) {
  const bool direct = takes_dense(destination, source);
  const Tensor target = direct ? destination : host_empty(source);
  const TtTensor from = describe(source);
  {
    const NoGil no_gil;
    check(tt_copy_to_host(&from, target.mutable_data_ptr(), target.nbytes()));
  }
  if (direct) return;
  if (destination.scalar_type() == target.scalar_type()) {
    as_movable(destination).copy_(as_movable(target));
  } else {
    destination.copy_(target);
  }
}

// Whether the bytes of a whole storage were copied, as PyTorch copies a storage.
bool copy_bytes(const Tensor& destination, const Tensor& source) {
  if (source.scalar_type() != at::kByte || destination.scalar_type() != at::kByte) return false;
  if (source.dim() != 1 || source.numel() == 0) return false;
  const TtTensor from = describe(source);
  const TtTensor to = describe(destination);
  uint8_t is_done = 0;
  const NoGil no_gil;
  check(tt_copy_bytes(&from, &to, &is_done));
  return is_done != 0;
}

void device_to_device(const Tensor& destination, const Tensor& source, bool non_blocking) {
  if (destination.device() == source.device()) {
    if (copy_bytes(destination, source)) return;
    static auto* op = new Operator(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
    torch::jit::Stack stack{destination, source, non_blocking};
    return call_operator(*op, &stack);
  }
  const bool direct = takes_dense(destination, source);
  const Tensor dense = source.contiguous().resolve_conj().resolve_neg();
  const Tensor target = direct ? destination : at::empty(source.sizes(), source.options().device(destination.device()));
  const TtTensor from = describe(dense);
  const TtTensor to = describe(target);
  {
    const NoGil no_gil;
    check(tt_copy_across(&from, &to));
  }
  if (!direct) destination.copy_(target);
}

// Whether both are views of the same elements in the same order.
bool shows_same(const Tensor& a, const Tensor& b) {
  return a.is_same(b) || (is_ours(a) && is_ours(b) && a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
                          a.sizes() == b.sizes() && a.strides() == b.strides() && a.dtype() == b.dtype() &&
                          a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg());
}

void transfer(const Tensor& destination, const Tensor& source, bool non_blocking) {
  if (destination.sizes() != source.sizes()) {
    const auto shape = at::infer_size(destination.sizes(), source.sizes());
    TORCH_CHECK(destination.sizes() == shape, "output with shape ", destination.sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(shape));
  }
  at::assert_no_internal_overlap(destination);
  if (is_ours(destination) && is_ours(source)) at::assert_no_partial_overlap(destination, source);
  if (is_ours(destination) && is_ours(source)) return device_to_device(destination, source, non_blocking);
  if (is_ours(destination)) return host_to_device(destination, source.cpu(), non_blocking);
  if (destination.is_cpu()) return device_to_host(destination, source);
  destination.copy_(source.cpu());  // another accelerator: copy through the host
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  if (!shows_same(self, source)) transfer(self, source, non_blocking);
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& destination, bool non_blocking) {
  transfer(destination, self, non_blocking);
  return destination;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  destination.resize_(self.sizes());
  transfer(destination, self, false);
  return destination;
}

at::Scalar local_scalar_dense(const Tensor& self) {
  const Tensor value = host_empty(self);
  device_to_host(value, self);
  return value.item();
}

}  // namespace

void register_copies() {
  auto& m = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

}  // namespace torchtpu
