// The first call with a new key runs the operator's meta kernel. It checks the arguments, with PyTorch's own errors,
// and infers the results.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "messages.h"
#include "shim.h"

namespace torchtpu {
namespace {

using c10::IValue;

bool is_mask(const IValue& index) {
  return index.isTensor() && (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte);
}

// Replaces tensors of this backend by tensors of another device: meta tensors without data, or CPU tensors whose elements
// are all `element`. Masks keep their values on the CPU, because the errors of indexing name how many elements are chosen.
class Substitutes {
 public:
  explicit Substitutes(c10::DeviceType device, int element = 0) : device_(device), element_(element) {}

  IValue convert(const IValue& value) {
    if (value.isTensor()) return convert(value.toTensor());
    if (value.isDevice()) return c10::Device(device_);
    if (value.isGenerator()) return IValue();
    // TorchScript has a type of its own for lists of optional tensors.
    if (!value.isList() || std::ranges::none_of(value.toListRef(), [](const IValue& item) { return item.isTensor(); })) return value;
    c10::impl::GenericList list(value.toList().elementType());
    const bool is_of_optionals = list.elementType()->kind() == c10::TypeKind::OptionalType;
    const bool keeps_masks = device_ == c10::DeviceType::CPU && is_of_optionals;
    for (const IValue& item : value.toListRef()) {
      list.push_back(keeps_masks && is_mask(item) ? IValue(item.toTensor().cpu()) : convert(item));
    }
    return list;
  }

  torch::jit::Stack convert(at::ArrayRef<IValue> values) {
    torch::jit::Stack stack;
    for (const IValue& value : values) stack.push_back(convert(value));
    return stack;
  }

 private:
  at::Tensor convert(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != kDevice) return tensor;
    const auto key = device_ == c10::DeviceType::Meta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
    auto substitute = at::detail::make_tensor<c10::TensorImpl>(storage_of(tensor), c10::DispatchKeySet(key), tensor.dtype());
    if (element_ != 0) {
      substitute.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize())});
      substitute.fill_(element_);
    }
    substitute.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return substitute;
  }

  // Tensors that share a storage still share one, so that PyTorch's overlap checks work.
  c10::Storage storage_of(const at::Tensor& tensor) {
    const c10::StorageImpl* original = tensor.storage().unsafeGetStorageImpl();
    for (const auto& [known, storage] : storages_) {
      if (known == original) return storage;
    }
    const size_t nbytes = tensor.storage().nbytes();
    c10::Allocator* allocator = c10::GetAllocator(device_);
    c10::DataPtr data(nullptr, device_);
    if (device_ != c10::DeviceType::Meta) {
      data = allocator->allocate(nbytes);
      if (nbytes > 0) std::memset(data.get(), 0, nbytes);
    }
    c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(data),
                                                               allocator, /*resizable=*/true));
    storages_.emplace_back(original, storage);
    return storage;
  }

  c10::DeviceType device_;
  int element_;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 8> storages_;
};

void collect(const IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) collect(item, tensors);
  }
}

// torch registers Python references over some structured meta kernels. They give other strides and error messages
// than the kernels of any device. For a backend without its own kernel, the composite that allocates the result calls
// the structured kernel. So these operators run as if they were for such a backend.
constexpr c10::DispatchKeySet kStructuredKey(c10::DispatchKey::PrivateUse3);

// That composite calls the operator's out= form to compute the result. On meta tensors this would be a Python
// reference, and the first one imports torch._dynamo, which takes a second. The result is not needed, so a
// fallback for a key above all backends, which no other code uses, skips the call. Operators over lists are composites
// that call the operator of their elements, which is then run in the same way.
constexpr c10::DispatchKey kShapesOnlyKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

void skip_computing(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  if (arguments.empty() || !is_out(arguments.back())) {
    if (is_structured(op)) return op.redispatchBoxed(kStructuredKey, stack);
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kShapesOnlyKey), stack);
    return;
  }
  torch::jit::Stack given = torch::jit::pop(*stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_out(arguments[i])) stack->push_back(std::move(given[i]));
  }
}

// The operator whose meta kernel the row names instead of `op`'s. It is empty for one whose arguments are a condition and
// tensors, all of which the kernels iterate over together.
std::optional<std::string_view> shapes_like(const c10::OperatorHandle& op) {
  size_t length = 0;
  const char* found = tt_shapes_like(short_name(op.schema()).c_str(), &length);
  return found == nullptr ? std::nullopt : std::optional(std::string_view(found, length));
}

// PyTorch's kernels take bytes as a condition. Its Python reference does not. The words are PyTorch's.
void convert_condition(const Operator& op, torch::jit::Stack& arguments) {
  if (const auto like = shapes_like(op.functional); !like || !like->empty()) return;
  IValue& condition = arguments.front();
  if (condition.toTensor().scalar_type() != at::kByte) return;
  TORCH_WARN_ONCE("where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future "
                  "version of PyTorch. Use a boolean condition instead.");
  condition = condition.toTensor().to(at::kBool);
}

// The results of an operator with a Python reference whose arguments the kernels iterate over together.
void run_elementwise_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const torch::jit::Stack given = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
  const auto dtype = stack->back().toTensor().scalar_type();
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).check_all_same_device(false);
  config.declare_static_dtype_and_device(dtype, c10::DeviceType::Meta).add_owned_output(at::Tensor());
  for (const IValue& input : given) config.add_owned_const_input(input.toTensor());
  stack->back() = config.build().output();
}

void run_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // The row says for operators that only have a Python reference, which gives other strides, whose results they have.
  if (const auto like = shapes_like(op)) {
    if (like->empty()) return run_elementwise_meta(op, stack);
    const std::string name(*like);
    const size_t dot = name.find('.');
    const std::string base = "aten::" + name.substr(0, dot);
    return run_meta(c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), name.substr(dot + 1).c_str()), stack);
  }
  const c10::DispatchKeySet key = is_structured(op) ? kStructuredKey : c10::DispatchKeySet(c10::DispatchKey::Meta);
  if (key != kStructuredKey && !op.schema().name().starts_with("aten::_foreach_")) return op.redispatchBoxed(key, stack);
  static const bool registered = [] {
    auto* library = new torch::Library(torch::Library::IMPL, "_", kShapesOnlyKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&skip_computing>());
    return true;
  }();
  (void)registered;
  c10::impl::IncludeDispatchKeyGuard shapes_only(kShapesOnlyKey);
  op.redispatchBoxed(key, stack);
}

// Resizes out= arguments to the sizes that the functional form returns. The functional form has the better error
// messages, and the user is warned of the resize once, when the real tensors are resized. Returns whether the
// arguments have the dtypes that the functional form returns.
bool resize_outs(const Operator& op, const torch::jit::Stack& arguments, at::ArrayRef<at::Tensor> outs) {
  bool same_dtypes = true;
  if (op.functional == op.handle) return same_dtypes;
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_out(op.handle.schema().arguments()[i])) stack.push_back(arguments[i]);
  }
  run_meta(op.functional, &stack);
  std::vector<at::Tensor> results;
  for (const IValue& value : stack) collect(value, results);
  for (size_t i = 0; i < results.size() && i < outs.size(); ++i) {
    if (!results[i].defined()) continue;
    if (outs[i].sizes() != results[i].sizes()) {
      outs[i].resize_(results[i].sizes());
      // Both forms of a structured operator use the strides that it computes.
      if (is_structured(op.functional)) outs[i].as_strided_(results[i].sizes(), results[i].strides());
    }
    same_dtypes &= outs[i].scalar_type() == results[i].scalar_type();
  }
  return same_dtypes;
}

// PyTorch's kernels that write a sequence and read no tensor keep the shape of an out= argument that has as many
// elements as they write. Its meta kernels do not. Those that draw numbers only keep strides.
void keep_shape(const Operator& op, at::ArrayRef<IValue> arguments, const at::Tensor& out) {
  if (!arguments[op.mutated[0]].isTensor()) return;  // a list of one
  const at::Tensor& given = arguments[op.mutated[0]].toTensor();
  const bool has_sizes = given.sizes() == out.sizes();
  if (!has_sizes && (op.draws || out.dim() != 1 || given.numel() != out.numel())) return;
  if (std::ranges::count_if(arguments, [](const IValue& argument) { return argument.isTensor() || argument.isList(); }) > 1) return;
  out.unsafeGetTensorImpl()->set_sizes_and_strides(given.sizes(), given.strides());
}

// Checks whether the written tensors overlap with inputs, which meta kernels may not check.
void refuse_overlap(const torch::jit::Stack& arguments, at::ArrayRef<at::Tensor> outs) {
  std::vector<at::Tensor> inputs;
  for (const IValue& argument : arguments) collect(argument, inputs);
  for (const at::Tensor& out : outs) {
    for (const at::Tensor& input : inputs) {
      if (input.defined() && !input.is_same(out) && input.is_meta()) at::assert_no_partial_overlap(out, input);
    }
  }
}

// Suppresses warnings about the replacement tensors.
struct IgnoredWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Restores the state of the CPU's default generator.
struct RestoredDefaultGenerator {
  RestoredDefaultGenerator() : generator(at::globalContext().defaultGenerator(c10::DeviceType::CPU)), state(generator.get_state()) {}
  ~RestoredDefaultGenerator() { generator.set_state(state); }
  at::Generator generator;
  at::Tensor state;
};

// The most bytes with which the CPU's kernel is called.
constexpr size_t kMaxBytes = size_t{64} << 20;

bool reaches_beyond_storage(const at::Tensor& tensor) {
  const size_t reach = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                        static_cast<size_t>(tensor.storage_offset()));
  return tensor.numel() > 0 && reach > tensor.storage().nbytes();
}

// Whether a written argument shares memory with another argument, or with itself.
bool written_share_memory(const Operator& op, at::ArrayRef<IValue> arguments) {
  std::vector<at::Tensor> all;
  for (const IValue& argument : arguments) collect(argument, all);
  std::vector<at::Tensor> written;
  for (const uint32_t position : op.mutated) collect(arguments[position], written);
  if (!op.has_out && written.size() != 1) return false;  // PyTorch does not compare the tensors of lists
  for (const at::Tensor& out : written) {
    if (!out.defined()) continue;
    if (at::has_internal_overlap(out) != at::MemOverlap::No) return true;
    for (const at::Tensor& other : all) {
      if (other.defined() && !other.is_same(out) && other.has_storage() && other.is_alias_of(out)) return true;
    }
    // An argument that is the written argument itself is listed twice.
    if (std::ranges::count_if(all, [&](const at::Tensor& other) { return other.is_same(out); }) > 1) return true;
  }
  return false;
}

// Calls the CPU's kernel.
torch::jit::Stack run_on_cpu(const Operator& op, torch::jit::Stack stack) {
  // Kernels of several results return references to their arguments. PyTorch 2.11 frees the arguments first.
  const torch::jit::Stack held = stack;
  IgnoredWarnings ignored_warnings;
  c10::WarningUtils::WarningHandlerGuard silence(&ignored_warnings);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::optional<RestoredDefaultGenerator> restored;
  if (op.draws) restored.emplace();
  op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return stack;
}

// Whether the CPU's kernel takes ones of the same sizes.
bool cpu_takes_ones(const Operator& op, at::ArrayRef<IValue> arguments) {
  torch::jit::Stack ones = Substitutes(c10::DeviceType::CPU, 1).convert(arguments);
  try {
    (void)run_on_cpu(op, std::move(ones));
    return true;
  } catch (...) {
    return false;
  }
}

// Calls the CPU's kernel with zeros of the same sizes, and throws its error. An error about the zeros themselves, such as
// a division by zero, does not come for ones. Empty if the CPU says nothing about the call.
std::optional<torch::jit::Stack> call_on_cpu(const Operator& op, at::ArrayRef<IValue> arguments, int32_t device) {
  size_t nbytes = 0;
  std::vector<at::Tensor> tensors;
  for (const IValue& argument : arguments) collect(argument, tensors);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!tensor.has_storage() || reaches_beyond_storage(tensor)) return std::nullopt;  // the CPU's kernel would crash
    nbytes += std::max(tensor.storage().nbytes(), static_cast<size_t>(tensor.numel()) * tensor.itemsize());
    if (nbytes > kMaxBytes) return std::nullopt;
  }
  // Not in the `try`: it may read a mask, which raises errors of earlier calls.
  torch::jit::Stack zeros = Substitutes(c10::DeviceType::CPU).convert(arguments);
  try {
    return run_on_cpu(op, std::move(zeros));
  } catch (const c10::LinAlgError&) {
  } catch (const c10::Error& error) {
    if (messages::contains_any(error.what_without_backtrace(), messages::kCpuLacks) || cpu_takes_ones(op, arguments)) return std::nullopt;
    rethrow_for(device, "cpu");
  } catch (const std::runtime_error&) {  // a number that does not fit into its dtype
    throw;
  } catch (...) {
  }
  return std::nullopt;
}

// As on CUDA, what is filled in may be a tensor of the CPU without dimensions. Python references of meta tensors compare
// devices.
void place_number(const Operator& op, torch::jit::Stack& stack) {
  const auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!stack[i].isTensor() || arguments[i].name() != "value") continue;
    const at::Tensor& value = stack[i].toTensor();
    if (value.defined() && value.is_cpu() && value.dim() == 0) stack[i] = value.to(c10::DeviceType::Meta);
  }
}

bool has_no_elements(const IValue& argument) {
  if (argument.isTensor()) return argument.toTensor().defined() && argument.toTensor().numel() == 0;
  if (!argument.isIntList() && !argument.isSymIntList()) return false;
  return std::ranges::any_of(argument.toListRef(), [](const IValue& size) { return size.isInt() && size.toInt() == 0; });
}

}  // namespace

bool overlaps_itself(const at::Tensor& tensor) { return at::has_internal_overlap(tensor) == at::MemOverlap::Yes; }

// Meta kernels lack some checks of the CPU's kernels and word others differently, in particular those written in
// Python.
void refuse_as_cpu(const Operator& op, at::ArrayRef<IValue> arguments, int32_t device) {
  (void)call_on_cpu(op, arguments, device);
}

// For a draw of no elements, PyTorch's CPU takes element types that it refuses for others. Its meta kernels do not.
bool draw_nothing(const Operator& op, torch::jit::Stack* stack, int32_t device) {
  const auto arguments = torch::jit::last(*stack, op.kinds.size());
  if (std::ranges::none_of(arguments, has_no_elements)) return false;
  auto results = call_on_cpu(op, arguments, device);
  if (!results) return false;
  std::vector<at::Tensor> tensors;
  for (const IValue& result : *results) collect(result, tensors);
  if (std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return !tensor.defined() || tensor.numel() > 0; })) return false;
  for (size_t i = 0; i < op.returns.size(); ++i) {
    const at::Tensor& result = tensors.at(i);
    if (op.returns[i] < 0) {
      (*results)[i] = at::empty_strided(result.sizes(), result.strides(), result.options().device(device_at(device)));
      continue;
    }
    const at::Tensor& written = arguments[static_cast<size_t>(op.returns[i])].toTensor();
    if (written.sizes() != result.sizes()) at::native::resize_output(written, result.sizes());
    (*results)[i] = written;
  }
  torch::jit::drop(*stack, op.kinds.size());
  for (IValue& result : *results) stack->push_back(std::move(result));
  return true;
}

Metas infer(const Operator& op, at::ArrayRef<IValue> arguments, int32_t device) {
  if (written_share_memory(op, arguments)) refuse_as_cpu(op, arguments, device);
  Metas result;
  torch::jit::Stack stack = Substitutes(c10::DeviceType::Meta).convert(arguments);
  place_number(op, stack);
  convert_condition(op, stack);
  std::vector<at::Tensor> written;
  for (const uint32_t position : op.mutated) collect(stack[position], written);
  // An argument that was not given (None) returns nothing.
  std::erase_if(written, [](const at::Tensor& tensor) { return !tensor.defined(); });

  IgnoredWarnings ignored_warnings;
  std::optional<c10::WarningUtils::WarningHandlerGuard> silence;
  if (op.has_out) silence.emplace(&ignored_warnings);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  NotTraced not_traced;
  bool cpu_takes_dtypes = false;
  try {
    if (op.has_out && !resize_outs(op, stack, written)) cpu_takes_dtypes = call_on_cpu(op, arguments, device).has_value();
    // Some meta kernels warn, in Python, of the resize of a result that is not empty.
    if (op.creates) written[0].resize_({0});
    // Not all in-place meta kernels check whether a tensor overlaps with itself. Some operators allow it.
    if (op.has_out) {
      for (const at::Tensor& out : written) at::assert_no_internal_overlap(out);
    }
    if (!op.has_out && std::ranges::any_of(written, overlaps_itself)) refuse_as_cpu(op, arguments, device);
    if (op.has_out || written.size() == 1) refuse_overlap(stack, written);
    run_meta(op.handle, &stack);
    if (op.has_out && written.size() == 1) keep_shape(op, arguments, written[0]);
  } catch (...) {
    if (means_no_metas()) return result;
    // Python references refuse out= arguments of dtypes that the kernels take. The arguments have their new sizes.
    if (!cpu_takes_dtypes) {
      refuse_as_cpu(op, arguments, device);
      if (is_select_of_empty()) return result;
      rethrow_for(device, "meta");
    }
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
