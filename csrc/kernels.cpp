// The call of an operator: converts the values on the stack to TtArgs, without copies of data that the core only
// reads.
#include <ATen/Context.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/DynamicCast.h>

#include <algorithm>
#include <atomic>
#include <memory_resource>
#include <mutex>

#include "shim.h"

namespace torchtpu {

bool apply_marks(at::ArrayRef<c10::IValue> arguments);  // marks.cpp

TtTensor describe(const c10::TensorImpl& tensor) {
  const auto keys = tensor.key_set();
  TtTensor described{nullptr,
                     tensor.sizes().data(),
                     tensor.strides().data(),
                     tensor.storage_offset(),
                     static_cast<int32_t>(tensor.dim()),
                     static_cast<int8_t>(c10::typeMetaToScalarType(tensor.dtype())),
                     keys.has(c10::DispatchKey::Conjugate),
                     keys.has(c10::DispatchKey::Negative)};
  if (!tensor.unsafe_storage()) return described;
  const c10::DataPtr& data = tensor.unsafe_storage().data_ptr();
  if (data.get_deleter() == &release_storage) [[likely]] {
    described.storage = data.get_context();
    return described;
  }
  // Memory of this backend in a new DataPtr, which PyTorch makes to pickle a storage and to import from DLPack.
  size_t byte_offset = 0;
  described.storage = tt_storage_at(data.get(), &byte_offset);
  described.offset += static_cast<int64_t>(byte_offset / tensor.itemsize());
  return described;
}

// torch.set_float32_matmul_precision only changes PyTorch's context, so it is read before each call that may depend
// on it.
void follow_matmul_precision() {
  static std::atomic<at::Float32MatmulPrecision> known{at::Float32MatmulPrecision::HIGHEST};
  const auto wanted = at::globalContext().float32MatmulPrecision();
  if (wanted == known.load(std::memory_order_relaxed)) [[likely]] return;
  known = wanted;
  tt_set_matmul_precision(wanted == at::Float32MatmulPrecision::HIGHEST ? TT_HIGHEST
                          : wanted == at::Float32MatmulPrecision::HIGH  ? TT_HIGH
                                                                        : TT_DEFAULT);
}

void follow_default_dtype() {
  static std::atomic<c10::ScalarType> known{c10::ScalarType::Float};
  const auto wanted = c10::get_default_dtype_as_scalartype();
  if (wanted == known.load(std::memory_order_relaxed)) [[likely]] return;
  known = wanted;
  tt_set_default_dtype(static_cast<int8_t>(wanted));
}

bool convert(TtArg& arg, const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->key_set().has(c10::DispatchKey::PrivateUse1)) [[likely]] {  // dense and on this backend
    arg.tag = TT_TENSOR;
    arg.tensor = describe(*impl);
    return arg.tensor.storage != nullptr;
  }
  const auto dtype = tensor.scalar_type();
  if (!impl->is_cpu() || impl->layout() != c10::kStrided || impl->dim() != 0 || tensor.is_quantized()) return false;
  const void* data = tensor.const_data_ptr();
  arg.tag = TT_SCALAR_TENSOR;
  arg.dtype = static_cast<int8_t>(dtype);
  arg.wrapped = impl->is_wrapped_number();
  if (c10::isComplexType(dtype)) {
    const auto value = c10::fetch_and_cast<c10::complex<double>>(dtype, data);
    arg.c[0] = value.real();
    arg.c[1] = value.imag();
  } else if (c10::isFloatingType(dtype)) {
    arg.f = c10::fetch_and_cast<double>(dtype, data);
  } else {
    arg.i = c10::fetch_and_cast<int64_t>(dtype, data);
  }
  return true;
}

namespace {

using c10::IValue;

// Memory for the lists in TtArgs, on the C++ stack in the common case.
class Scratch {
 public:
  template <typename T>
  T* take(size_t count) {
    return static_cast<T*>(memory_.allocate(count * sizeof(T), alignof(T)));
  }
  void clear() { memory_.release(); }

 private:
  alignas(std::max_align_t) std::byte room_[1024];
  std::pmr::monotonic_buffer_resource memory_{room_, sizeof(room_)};
};

struct Call {
  Call(const Operator& op, at::ArrayRef<IValue> stack) : op(op), stack(stack) {}

  const Operator& op;
  at::ArrayRef<IValue> stack;
  c10::SmallVector<TtArg, 12> args;
  Scratch scratch;
  int32_t device = -1;  // -1 until the first tensor
  c10::GeneratorImpl* generator = nullptr;

  void convert();
  void convert_value(TtArg& arg, const IValue& value, size_t position);
  void convert_tensor(TtArg& arg, const at::Tensor& tensor, size_t position);
  void convert_list(TtArg& arg, const IValue& value, size_t position);
  [[noreturn]] void refuse_tensor(const at::Tensor& tensor, size_t position);
};

void Call::refuse_tensor(const at::Tensor& tensor, size_t position) {
  const auto here = device_at(device_of(stack));
  // PyTorch compares devices before it calls a kernel of a device, and not before it calls a composite.
  const bool composite = op.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  if (tensor.device() != here && composite && op.mutated.empty()) {
    std::vector<IValue> given(stack.begin(), stack.end());
    try {
      op.handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, given);  // says what it requires
    } catch (const c10::NotImplementedError&) {
      // The composite kernel asks for a kernel of the backend, and says nothing of devices. The check below does.
    }
  }
  TORCH_CHECK(tensor.device() == here, "Expected all tensors to be on the same device, but found at least two devices, ",
              here, " and ", tensor.device(), "! (when checking argument for argument ",
              op.handle.schema().arguments()[position].name(), " in method ", op.name, ")");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized(), op.name, ": ",
                              tensor.layout() == c10::kStrided ? "quantized" : "sparse", " tensors are not supported on ", here);
  TORCH_CHECK(false, op.name, ": argument ", op.handle.schema().arguments()[position].name(), " has no storage on ", here);
}

void Call::convert_tensor(TtArg& arg, const at::Tensor& tensor, size_t position) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (impl == c10::UndefinedTensorImpl::singleton()) {
    arg.tag = TT_NONE;
    return;
  }
  // A number that PyTorch wrapped, or a 0-d CPU tensor, may be an argument next to device tensors, but may not be
  // written.
  if (!torchtpu::convert(arg, tensor)) {
    // As on CUDA, a learning rate of one element may be on the CPU.
    const bool is_rate = tensor.device().is_cpu() && tensor.numel() == 1 && tensor.layout() == c10::kStrided &&
                         op.handle.schema().arguments()[position].name() == "lr";
    if (!is_rate || !torchtpu::convert(arg, tensor.reshape({}))) refuse_tensor(tensor, position);
  }
  if (arg.tag == TT_TENSOR) [[likely]] {
    const int32_t index = impl->device().index();
    if (device < 0) device = index;
    if (index != device) [[unlikely]] refuse_tensor(tensor, position);
  } else if (std::ranges::find(op.mutated, position) != op.mutated.end()) {
    refuse_tensor(tensor, position);
  }
}

void Call::convert_list(TtArg& arg, const IValue& value, size_t position) {
  const auto items = value.toListRef();
  arg.length = static_cast<uint32_t>(items.size());
  const auto fill = [&]<typename T>(TtTag tag, T* room, auto read) {
    arg.tag = tag;
    arg.p = room;
    for (const IValue& item : items) *room++ = read(item);
  };
  if (value.isIntList()) {
    fill(TT_INTS, scratch.take<int64_t>(items.size()), [](const IValue& item) { return item.toInt(); });
  } else if (value.isDoubleList()) {
    fill(TT_FLOATS, scratch.take<double>(items.size()), [](const IValue& item) { return item.toDouble(); });
  } else if (value.isBoolList()) {
    fill(TT_BOOLS, scratch.take<uint8_t>(items.size()), [](const IValue& item) { return static_cast<uint8_t>(item.toBool()); });
  } else if (value.isSymIntList()) {
    fill(TT_INTS, scratch.take<int64_t>(items.size()),
         [](const IValue& item) { return item.toSymInt().guard_int(__FILE__, __LINE__); });
  } else {
    auto* room = scratch.take<TtArg>(items.size());
    arg.tag = TT_LIST;
    arg.p = room;
    for (const IValue& item : items) {
      *room = {};
      convert_value(*room++, item, position);
    }
  }
}

void Call::convert_value(TtArg& arg, const IValue& value, size_t position) {
  if (value.isTensor()) {
    convert_tensor(arg, value.toTensor(), position);
  } else if (value.isNone()) {
    arg.tag = TT_NONE;
  } else if (value.isInt()) {
    arg.tag = op.kinds[position] == ArgKind::kDtype ? TT_DTYPE : TT_INT;
    arg.i = value.toInt();
  } else if (value.isUnsigned()) {  // a Python integer that does not fit into int64
    arg.tag = TT_SCALAR_TENSOR;
    arg.dtype = static_cast<int8_t>(c10::ScalarType::UInt64);
    arg.wrapped = 1;
    arg.i = static_cast<int64_t>(value.toUInt());
  } else if (value.isDouble()) {
    arg.tag = TT_FLOAT;
    arg.f = value.toDouble();
  } else if (value.isBool()) {
    arg.tag = TT_BOOL;
    arg.i = value.toBool();
  } else if (value.isList()) {
    convert_list(arg, value, position);
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    arg.tag = TT_COMPLEX;
    arg.c[0] = number.real();
    arg.c[1] = number.imag();
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    arg.tag = TT_STRING;
    arg.length = static_cast<uint32_t>(text.size());
    arg.p = text.data();
  } else if (value.isGenerator()) {
    auto* drawn = at::check_generator<TpuGenerator>(value.toGenerator());
    generator = drawn;
    arg.tag = TT_GENERATOR;
    arg.p = &drawn->state;
  } else if (value.isSymInt()) {
    arg.tag = TT_INT;
    arg.i = value.toSymInt().guard_int(__FILE__, __LINE__);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op.name, ": torchtpu cannot pass an argument of type ", value.tagKind());
  }
}

void Call::convert() {
  args.clear();
  args.resize(stack.size());
  scratch.clear();
  device = -1;
  generator = nullptr;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (op.kinds[i] == ArgKind::kIgnored) {
      args[i].tag = TT_IGNORED;
    } else {
      convert_value(args[i], stack[i], i);
    }
  }
  if (device < 0) device = device_of(stack);
}

// PyTorch's kernels that take no tensor resize a given result themselves. Only arange warns.
void resize_created(const Operator& op, const at::Tensor& out, at::IntArrayRef sizes) {
  if (op.name == "arange.start_out" && out.numel() > 0) {
    TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
               " which does not match the computed number of elements ", sizes[0],
               ". Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of shape (",
               sizes[0], ",).");
  }
  out.resize_(sizes);
}

// Resizes the out= arguments to the sizes of the results, with the results' strides if the sizes differ.
void resize_outs(const Call& call) {
  c10::SmallVector<TtMeta, 4> metas(call.op.mutated.size());
  size_t count = metas.size();
  check(tt_result_metas(call.op.id, call.args.data(), call.args.size(), metas.data(), &count));
  if (count > metas.size()) {
    metas.resize(count);
    check(tt_result_metas(call.op.id, call.args.data(), call.args.size(), metas.data(), &count));
  }
  size_t at = 0;
  const auto resize = [&](const IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined() || at >= count) return;
    const TtMeta& meta = metas[at++];
    if (meta.ndim < 0) return;
    const at::IntArrayRef sizes(meta.sizes, static_cast<size_t>(meta.ndim));
    if (value.toTensor().sizes() == sizes) return;
    if (call.op.creates) return resize_created(call.op, value.toTensor(), sizes);
    if (!at::native::resize_output(value.toTensor(), sizes)) return;
    value.toTensor().as_strided_(sizes, {meta.strides, sizes.size()});
  };
  for (const uint32_t position : call.op.mutated) {
    const IValue& value = call.stack[position];
    if (!value.isList()) {
      resize(value);
    } else {
      for (const IValue& item : value.toListRef()) resize(item);
    }
  }
}

TtStatus call_core(Call& call, c10::SmallVector<TtOut, 4>& outs, size_t& count) {
  count = outs.size();
  if (!call.op.draws) [[likely]] {
    return tt_call(call.op.id, call.args.data(), call.args.size(), call.device, nullptr, outs.data(), &count);
  }
  // Only around the core's call: the thread that holds the GIL may wait for this mutex.
  NoGil no_gil;
  auto* generator = call.generator != nullptr ? call.generator : default_generator(call.device).unsafeGetGeneratorImpl();
  std::lock_guard lock(generator->mutex_);
  return tt_call(call.op.id, call.args.data(), call.args.size(), call.device, &static_cast<TpuGenerator*>(generator)->state,
                 outs.data(), &count);
}

// Throws the error of PyTorch's CPU kernel for a call that the core refuses, else the core's error.
[[noreturn]] void refuse(const Call& call) {
  const auto kind = tt_last_error()->kind;
  if (kind != TT_NOT_IMPLEMENTED && kind != TT_OUT_OF_MEMORY) refuse_as_cpu(call.op, call.stack, call.device);
  throw_last_error();
}

// Lowers the call's key. False if the operator has neither a row nor a decomposition, or if the sizes of out=
// arguments are unknown.
bool define(const Call& call) {
  NoGil no_gil;
  follow_matmul_precision();
  const Metas metas = infer(call.op, call.stack, call.device);
  if (!metas.known && call.op.has_out && call.op.functional != call.op.handle) return false;
  const auto* known = metas.known ? metas.metas.data() : nullptr;
  const auto lower = [&](uint64_t graph) {
    uint8_t follows_precision = 0;
    const TtStatus status = tt_define(call.op.id, call.args.data(), call.args.size(), known, metas.metas.size(), graph,
                                      call.device, &follows_precision);
    if (follows_precision) call.op.follows_precision.store(true, std::memory_order_relaxed);
    return status;
  };
  TtStatus status = lower(0);
  if (status == TT_NO_ROW) {
    const uint64_t graph = trace(call.op, call.stack, call.device);
    if (graph == 0) return false;
    status = lower(graph);
  }
  if (status != TT_OK) refuse(call);
  return true;
}

// Calls the operator. Lowers the call's key first if it is new. TT_NO_ROW if it cannot be lowered.
TtStatus define_and_call(Call& call, c10::SmallVector<TtOut, 4>& outs, size_t& count) {
  TtStatus status = call_core(call, outs, count);
  if (status == TT_NEW_KEY && apply_marks(call.stack)) [[unlikely]] status = call_core(call, outs, count);
  // A key is new a second time only if another thread has just found that the operator depends on the precision of
  // products, which is part of its keys from then on.
  while (status == TT_NEW_KEY) [[unlikely]] {
    if (!define(call)) return TT_NO_ROW;
    status = call_core(call, outs, count);
  }
  return status;
}

// Computes new results and copies them into the out= arguments.
void call_functional(const Operator& op, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.kinds.size();
  const auto& arguments = op.handle.schema().arguments();
  torch::jit::Stack results;
  std::vector<at::Tensor> outs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const IValue& value = (*stack)[base + i];
    if (is_out(arguments[i])) {
      TORCH_CHECK_NOT_IMPLEMENTED(value.isTensor(), op.name, ": lists of results cannot be written to given tensors");
      outs.push_back(value.toTensor());
    } else {
      results.push_back(value);
    }
  }
  op.functional.callBoxed(&results);
  for (size_t i = 0; i < outs.size(); ++i) {
    const at::Tensor& result = results.at(i).toTensor();
    if (result.scalar_type() != outs[i].scalar_type()) {
      refuse_as_cpu(op, torch::jit::last(*stack, op.kinds.size()), device_of(torch::jit::last(*stack, op.kinds.size())));
    }
    TORCH_CHECK(result.scalar_type() == outs[i].scalar_type(), "Expected out tensor to have dtype ", result.scalar_type(),
                ", but got ", outs[i].scalar_type(), " instead");
    at::native::resize_output(outs[i], result.sizes());
    outs[i].copy_(result);
  }
  torch::jit::drop(*stack, op.kinds.size());
  for (const at::Tensor& out : outs) stack->emplace_back(out);
}

// Runs an operator with neither row nor decomposition on the CPU if the user allows that, else throws.
void fall_back(const Call& call, torch::jit::Stack* stack) {
  uint8_t is_first = 0;
  check(tt_fall_back(call.op.id, call.args.data(), call.args.size(), call.device, &is_first));
  if (is_first) TORCH_WARN(call.op.name, " has no lowering for ", device_at(call.device), " and runs on the CPU, with copies both ways");
  at::native::cpu_fallback(call.op.handle, stack);
}

void push_results(const Operator& op, torch::jit::Stack* stack, at::ArrayRef<TtOut> outs, int32_t device) {
  const size_t n = op.kinds.size();
  if (op.returns.size() == 1 && op.returns[0] < 0 && !op.fresh_list) [[likely]] {
    at::Tensor result = adopt(outs[0], device);
    torch::jit::drop(*stack, n);
    stack->emplace_back(std::move(result));
    return;
  }
  c10::SmallVector<IValue, 4> results;
  const size_t base = stack->size() - n;
  size_t at = 0;
  for (const int32_t position : op.returns) {
    if (position >= 0) {
      results.push_back((*stack)[base + static_cast<size_t>(position)]);
    } else if (op.fresh_list) {
      std::vector<at::Tensor> list;
      for (const TtOut& out : outs) list.push_back(adopt(out, device));
      results.push_back(std::move(list));
    } else {
      results.push_back(adopt(outs[at++], device));
    }
  }
  torch::jit::drop(*stack, n);
  for (IValue& result : results) stack->push_back(std::move(result));
}

// Raises the errors of the data that the call has asked for.
void raise_failed_checks(int32_t device) {
  const NoGil no_gil;
  check(tt_synchronize(device));
}

}  // namespace

int32_t device_of(at::ArrayRef<IValue> arguments) {
  int32_t named = current_device();
  for (const IValue& value : arguments) {
    if (value.isTensor()) {
      if (value.toTensor().defined() && value.toTensor().device().type() == kDevice) return value.toTensor().device().index();
    } else if (value.isList()) {
      for (const IValue& item : value.toListRef()) {
        if (!item.isTensor()) break;
        if (item.toTensor().defined() && item.toTensor().device().type() == kDevice) return item.toTensor().device().index();
      }
    } else if (value.isDevice()) {
      named = index_of(value.toDevice());
    }
  }
  return named;
}

// torch.jit.trace does not record a convolution, but what PyTorch's own kernel of it calls.
bool call_traced(const Operator& op, torch::jit::Stack* stack) {
  if (op.name != "convolution") return false;
  static const auto recorded = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_convolution", "");
  torch::jit::push(*stack, /*benchmark=*/false, /*deterministic=*/false, /*cudnn_enabled=*/false, /*allow_tf32=*/false);
  recorded.callBoxed(stack);
  return true;
}

void call_operator(const Operator& op, torch::jit::Stack* stack) {
  if (torch::jit::tracer::getTracingState() && call_traced(op, stack)) [[unlikely]] return;
  const size_t base = stack->size() - op.kinds.size();
  if (op.takes_indices) [[unlikely]] {
    if (indexes_cpu_tensor(op, *stack)) return op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    move_indices(op, stack);
  }
  if (op.warned_of != nullptr) [[unlikely]] warn_of_expanded(op, *stack);
  if (op.follows_precision.load(std::memory_order_relaxed)) follow_matmul_precision();
  follow_default_dtype();
  Call call(op, torch::jit::last(*stack, op.kinds.size()));
  call.convert();
  if (!op.supported) [[unlikely]] return fall_back(call, stack);
  if (op.draws && op.row.exists && draw_nothing(op, stack, call.device)) [[unlikely]] return;

  const bool located = tt_wants_line();
  if (located) [[unlikely]] tt_note_line();
  if (tt_wants_scope()) [[unlikely]] note_scope();
  c10::SmallVector<TtOut, 4> outs(op.fresh_list ? 4 : op.fresh);
  size_t count = 0;
  TtStatus status = define_and_call(call, outs, count);
  if (status == TT_OTHER_SIZES && op.has_out) [[unlikely]] {
    // The sizes are part of the key, so the resized call has another key.
    resize_outs(call);
    call.convert();
    status = define_and_call(call, outs, count);
  }
  if (status == TT_NEEDS_ROOM) [[unlikely]] {
    outs.resize(count);
    status = call_core(call, outs, count);
  }
  if (status == TT_OK) [[likely]] {
    if (!located && tt_wants_line()) [[unlikely]] tt_locate_last_call(call.device);
    const bool asks =
        op.row.raises_at_call || (op.check_errors >= 0 && (*stack)[base + static_cast<size_t>(op.check_errors)].toBool());
    push_results(op, stack, {outs.data(), count}, call.device);
    if (asks) [[unlikely]] raise_failed_checks(call.device);
    return;
  }
  if (status == TT_NO_ROW) {
    // The functional form may have a kernel that is not a row.
    if (op.has_out && op.functional != op.handle) return call_functional(op, stack);
    return fall_back(call, stack);
  }
  if (status == TT_REFUSED) {
    NoGil no_gil;
    infer(op, call.stack, call.device);  // throws if PyTorch's meta kernel refuses the call too
    refuse(call);
  }
  TORCH_CHECK(status != TT_OTHER_SIZES, op.name, ": the tensor that it writes to has other sizes than the result");
  TORCH_CHECK(status == TT_ERROR, "internal error: ", op.name, " ended with status ", static_cast<int>(status));
  throw_last_error();
}

}  // namespace torchtpu
