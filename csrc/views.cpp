// Operators that a backend must implement in C++: new tensors, views without a composite, and storages. All other
// views (slice, permute, expand, …) are metadata-only composites over as_strided and alias.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_unsafe_view_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

using at::IntArrayRef;
using at::Tensor;
using std::optional;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::ScalarType supported(optional<c10::ScalarType> dtype) {
  const c10::ScalarType type = c10::dtype_or_default(dtype);
  if (tt_check_dtype(static_cast<int8_t>(type)) != TT_OK) TORCH_CHECK_TYPE(false, last_error_message());
  return type;
}

void check_options(optional<c10::Layout> layout, optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided, "tpu tensors are strided, not ", *layout);
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

// Whether memory without a value must hold NaN, or the largest integer, as PyTorch's own kernels fill it.
bool fills_new_memory() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

Tensor filled(Tensor tensor) {
  if (fills_new_memory()) [[unlikely]] at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

Tensor new_tensor(IntArrayRef size, optional<c10::ScalarType> dtype, optional<c10::Layout> layout,
                  optional<c10::Device> device, optional<bool> pin_memory, optional<c10::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, allocator(), kKeys, supported(dtype), memory_format);
}

Tensor empty(IntArrayRef size, optional<c10::ScalarType> dtype, optional<c10::Layout> layout, optional<c10::Device> device,
             optional<bool> pin_memory, optional<c10::MemoryFormat> memory_format) {
  return filled(new_tensor(size, dtype, layout, device, pin_memory, memory_format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, optional<c10::ScalarType> dtype, optional<c10::Layout> layout,
                     optional<c10::Device> device, optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return filled(at::detail::empty_strided_generic(size, stride, allocator(), kKeys, supported(dtype)));
}

// Autograd's zeros that need no memory. Here they are ordinary zeros.
Tensor efficient_zeros(IntArrayRef size, optional<c10::ScalarType> dtype, optional<c10::Layout> layout,
                       optional<c10::Device> device, optional<bool> pin_memory) {
  return new_tensor(size, dtype, layout, device, pin_memory, std::nullopt).zero_();
}

// Resizes the storage if it is too small for the tensor.
void grow_storage(const Tensor& self) {
  if (self.numel() == 0) return;
  const size_t nbytes = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.dtype().itemsize(),
                                                         static_cast<size_t>(self.storage_offset()));
  if (nbytes > self.storage().nbytes()) {
    TORCH_CHECK(self.storage().resizable(), "Trying to resize storage that is not resizable");
    resize_storage(self.storage(), nbytes);
  }
}

const Tensor& resize_(const Tensor& self, IntArrayRef size, optional<c10::MemoryFormat> memory_format) {
  auto* impl = self.unsafeGetTensorImpl();
  const auto bytes_before = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != size) impl->set_sizes_contiguous(size);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  grow_storage(self);
  if (fills_new_memory()) [[unlikely]] at::native::fill_resize_deterministic_(self, bytes_before);
  return self;
}

Tensor& set_storage_(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  if (stride.data() != nullptr) {
    impl->set_sizes_and_strides(size, stride, offset);
  } else {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  }
  grow_storage(self);
  if (self.numel() == 0 || self.scalar_type() == at::kByte) return self;
  const TtTensor tensor = torchtpu::describe(*impl);
  // The storage of a wrapper has no memory of the device.
  if (tensor.storage == nullptr) return self;
  const NoGil no_gil;
  check(tt_take_type(&tensor));
  return self;
}

Tensor& set_nothing_(Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  at::Storage nothing(at::Storage::use_byte_size_t(), 0, allocator(), /*resizable=*/true);
  return set_storage_(self, std::move(nothing), 0, {0}, {});
}

void record_stream(Tensor&, c10::Stream) {}  // one in-order queue: memory is never reused early

bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(), " and ",
              other.device());
  return self.sizes() == other.sizes() && self.eq(other).all().item().toBool();
}

// Allows `self.data = from` between host and device. `module.to` then keeps its Parameter objects, and with them tied
// weights and references of optimizers.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto is_dense = [](const Tensor& tensor) {
    constexpr c10::DispatchKeySet backends({c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
    return tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && tensor.key_set().has_any(backends);
  };
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

void register_views() {
  auto& m = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_unsafe_view", TORCH_FN(at::native::_unsafe_view));  // PyTorch writes through it (kron)
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_", TORCH_FN(set_nothing_));
  m.impl("set_.source_Storage", TORCH_FN(static_cast<Tensor& (*)(Tensor&, at::Storage)>(&at::native::set_)));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("equal", TORCH_FN(equal));
  // A composite, which tensors with `__torch_dispatch__` do not see on other devices either.
  for (const auto key : {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) {
    auto& composites = *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    composites.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  }
}

}  // namespace torchtpu
