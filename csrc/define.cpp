// The first call with a new key runs the operator's meta kernel: PyTorch's own checks raise PyTorch's own
// errors, and its shape inference says what the results look like.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "shim.h"

namespace torchtpu {
namespace {

using c10::IValue;

class MetaTensors {
 public:
  IValue convert(const IValue& value) {
    if (value.isTensor()) return convert(value.toTensor());
    if (value.isDevice()) return c10::Device(c10::DeviceType::Meta);
    if (value.isGenerator()) return IValue();
    if (!value.isTensorList() && !value.isOptionalTensorList()) return value;
    c10::impl::GenericList list(value.toList().elementType());
    for (const IValue& item : value.toListRef()) list.push_back(convert(item));
    return list;
  }

 private:
  at::Tensor convert(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != kDevice) return tensor;
    auto meta = at::detail::make_tensor<c10::TensorImpl>(
        storage_of(tensor), c10::DispatchKeySet(c10::DispatchKey::Meta), tensor.dtype());
    meta.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return meta;
  }

  // Tensors that share a storage keep sharing one, so that PyTorch's overlap checks hold.
  c10::Storage storage_of(const at::Tensor& tensor) {
    const c10::StorageImpl* original = tensor.storage().unsafeGetStorageImpl();
    for (const auto& [known, storage] : storages_) {
      if (known == original) return storage;
    }
    c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), tensor.storage().nbytes(), c10::DataPtr(nullptr, c10::DeviceType::Meta),
        c10::GetAllocator(c10::DeviceType::Meta), /*resizable=*/true));
    storages_.emplace_back(original, storage);
    return storage;
  }

  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 8> storages_;
};

void collect(const IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) collect(item, tensors);
  }
}

// torch registers Python references over its structured meta kernels, with other strides and other error
// texts than any device gives. A backend that has nothing of its own still gets the structured kernel, through
// the composite that allocates with it, so these operators are run as that backend's.
constexpr c10::DispatchKeySet kStructuredKey(c10::DispatchKey::PrivateUse3);

c10::DispatchKeySet meta_key(const c10::OperatorHandle& op) {
  return is_structured(op) ? kStructuredKey : c10::DispatchKeySet(c10::DispatchKey::Meta);
}

// Gives out= arguments the sizes that the functional form returns. Its checks are the better worded ones,
// and the user is warned of the resizing once, when the real tensors are resized.
void resize_outs(const Operator& op, const torch::jit::Stack& arguments, at::ArrayRef<at::Tensor> outs) {
  if (op.functional == op.handle) return;
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_out(op.handle.schema().arguments()[i])) stack.push_back(arguments[i]);
  }
  op.functional.redispatchBoxed(meta_key(op.functional), &stack);
  std::vector<at::Tensor> results;
  for (const IValue& value : stack) collect(value, results);
  for (size_t i = 0; i < results.size() && i < outs.size(); ++i) {
    if (results[i].defined() && outs[i].sizes() != results[i].sizes()) outs[i].resize_(results[i].sizes());
  }
}

// In-place meta kernels check this by themselves; those of out= forms may not.
void refuse_overlap(const torch::jit::Stack& arguments, at::ArrayRef<at::Tensor> outs) {
  std::vector<at::Tensor> inputs;
  for (const IValue& argument : arguments) collect(argument, inputs);
  for (const at::Tensor& out : outs) {
    at::assert_no_internal_overlap(out);
    for (const at::Tensor& input : inputs) {
      if (input.defined() && !input.is_same(out) && input.is_meta()) at::assert_no_partial_overlap(out, input);
    }
  }
}

// The warning of what could not be resized that way.
struct Silent final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

Metas infer(const Operator& op, at::ArrayRef<IValue> arguments, int32_t device) {
  Metas result;
  MetaTensors convert;
  torch::jit::Stack stack;
  for (const IValue& argument : arguments) stack.push_back(convert.convert(argument));
  std::vector<at::Tensor> written;
  for (const uint32_t position : op.mutated) collect(stack[position], written);
  // An argument that was not given (a None) returns nothing.
  std::erase_if(written, [](const at::Tensor& tensor) { return !tensor.defined(); });

  Silent silent;
  std::optional<c10::WarningUtils::WarningHandlerGuard> silence;
  if (op.has_out) silence.emplace(&silent);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    if (op.has_out) resize_outs(op, stack, written);
    if (op.has_out) refuse_overlap(stack, written);
    op.handle.redispatchBoxed(meta_key(op.handle), &stack);
  } catch (...) {
    if (!means_no_metas()) rethrow_for(device);
    return result;
  }

  result.tensors = std::move(written);
  for (size_t i = 0; i < op.returns.size(); ++i) {
    if (op.returns[i] < 0) collect(stack[i], result.tensors);
  }
  for (const at::Tensor& tensor : result.tensors) {
    if (!tensor.defined()) {
      result.metas.push_back({nullptr, nullptr, -1, -1});
    } else if (tensor.layout() != c10::kStrided || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
      return result;
    } else {
      result.metas.push_back({tensor.sizes().data(), tensor.strides().data(), static_cast<int32_t>(tensor.dim()),
                              static_cast<int8_t>(tensor.scalar_type())});
    }
  }
  result.known = true;
  return result;
}

}  // namespace torchtpu
