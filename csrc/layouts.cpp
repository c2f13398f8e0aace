// Sparse tensors (COO and the compressed layouts), and nested ones of the strided layout (those of the jagged layout are a
// Python class). Many of PyTorch's own kernels only call operators of the dense tensors inside, so they serve any device: of
// those for sparse tensors the ones named here are used as they are, and python/torchtpu/sparse has the others; of those for
// nested tensors all but the ones named here.
#include <string_view>
#include <unordered_set>

#include <ATen/core/Tensor.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/_transform_bias_rescale_qkv.h>
#include <ATen/ops/native_layer_norm.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using Names = std::unordered_set<std::string_view>;

constexpr std::string_view kAten = "aten::";

// Work on the values: all forms of the operator (in-place, out=).
const Names kPointwise = {
    "_conj_physical", "abs", "angle", "asin", "asinh", "atan", "atanh", "ceil", "conj_physical", "deg2rad", "div", "erf",
    "erfinv", "expm1", "floor", "floor_divide", "frac", "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num", "neg",
    "pow", "rad2deg", "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "sub", "tan", "tanh",
    "threshold_backward", "trunc"};

// What a tensor is made of, and what rearranges that or reduces all values.
const Names kCoo = {
    "_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_pin_memory", "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors", "_to_dense", "_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_bsc",
    "_to_sparse_bsr", "_to_sparse_csc", "_to_sparse_csr", "_values", "add.Tensor", "add_.Tensor", "any", "cat", "clone", "copy_",
    "copy_sparse_to_sparse_", "dense_dim", "empty.memory_format", "empty_like", "indices", "is_coalesced", "is_pinned",
    "linalg_vector_norm", "mm", "mul.Tensor", "mul_.Tensor", "mv", "narrow_copy", "native_norm",
    "native_norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "permute", "resize_as_sparse_",
    "sparse_dim", "sparse_resize_", "sparse_resize_and_clear_", "sum", "sum.dim_IntList", "unsqueeze", "values",
    "view_as_complex", "view_as_real", "zero_", "zeros.out"};

const Names kCompressed = {
    "_nnz", "_pin_memory", "_to_dense", "_to_sparse", "_to_sparse.sparse_dim", "add.Tensor", "add_.Tensor", "addmm",
    "ccol_indices", "clone", "col_indices", "copy_", "crow_indices", "dense_dim", "empty.memory_format", "empty_like",
    "fill_.Scalar", "is_pinned", "mm", "mul.Scalar", "mul.Tensor", "mul.out", "mul_.Scalar", "mul_.Tensor", "normal_",
    "resize_", "resize_as_sparse_", "row_indices", "select.int", "select_copy.int", "sparse_dim", "sparse_mask", "sum",
    "sum.dim_IntList", "values", "zero_"};

// Of nested tensors, what reads memory itself, or calls what does.
const Names kNestedReadMemory = {"_nested_sum_backward", "_transform_bias_rescale_qkv", "native_layer_norm",
                                 "native_layer_norm_backward", "sum.dim_IntList"};


// From dense tensors to sparse and nested ones.
constexpr const char* kFromDense[] = {
    "_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc",
    "_embedding_bag_backward", "_nested_from_padded", "_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned"};

void use_python(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);

// What PyTorch has no sparse kernel for is refused by the Python side. Registering that for all operators takes milliseconds,
// which is too long for an import: it waits for the first call.
void register_fallbacks() {
  static const bool done = [] {
    for (const DispatchKey key : {DispatchKey::SparsePrivateUse1, DispatchKey::SparseCsrPrivateUse1}) {
      auto* library = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
      library->fallback(torch::CppFunction::makeFromBoxedFunction<&use_python>());
    }
    return true;
  }();
  (void)done;
}

// PyTorch makes the parts of such a tensor on the current device.
c10::DeviceGuard guard(const OperatorHandle& op, const torch::jit::Stack& stack) {
  register_fallbacks();
  return c10::DeviceGuard(device_at(device_of(torch::jit::last(stack, op.schema().arguments().size()))));
}

template <DispatchKey key>
void use_pytorchs(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto here = guard(op, *stack);
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

void use_python(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto here = guard(op, *stack);
  call_sparse(op, stack);
}

std::string_view base_of(std::string_view name) {
  name = name.substr(0, name.find('.'));
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

std::string name_of(const OperatorHandle& op) {
  const c10::OperatorName& full = op.operator_name();
  std::string name = full.name.substr(kAten.size());
  return full.overload_name.empty() ? name : name + "." + full.overload_name;
}

// Registered for the life of the process: the handle that would undo it is leaked.
template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* kernel>
void give(const OperatorHandle& op, DispatchKey key) {
  new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key, c10::KernelFunction::makeFromBoxedFunction<kernel>(), std::nullopt, nullptr, "torchtpu"));
}

// Gives an operator that PyTorch has for sparse tensors on the CPU, `model`, to the device's `key`.
template <DispatchKey model>
void register_sparse(const OperatorHandle& op, DispatchKey key, const Names& names) {
  if (!op.hasKernelForDispatchKey(model)) return;
  const std::string name = name_of(op);
  if (kPointwise.contains(base_of(name)) || names.contains(name)) {
    give<&use_pytorchs<model>>(op, key);
  } else {
    give<&use_python>(op, key);
  }
}

void register_nested(const OperatorHandle& op) {
  constexpr DispatchKey model = DispatchKey::NestedTensorCPU;
  if (!op.hasKernelForDispatchKey(model) || kNestedReadMemory.contains(name_of(op))) return;
  give<&use_pytorchs<model>>(op, DispatchKey::NestedTensorPrivateUse1);
}

// What PyTorch's layers of nested tensors leave to the device.
std::tuple<at::Tensor, at::Tensor, at::Tensor> nested_qkv(const at::Tensor& qkv, const at::Tensor& bias, int64_t heads) {
  return at::_transform_bias_rescale_qkv(qkv.to_padded_tensor(0), bias, heads);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> nested_layer_norm(
    const at::Tensor& input, c10::IntArrayRef shape, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, double eps) {
  const at::Tensor whole = input.contiguous();
  const auto* nested = at::native::get_nested_tensor_impl(whole);
  std::vector<int64_t> rows{-1};
  rows.insert(rows.end(), shape.begin(), shape.end());
  const auto [result, mean, rstd] = at::native_layer_norm(nested->get_buffer().view(rows), shape, weight, bias, eps);
  return {at::detail::make_tensor<at::native::NestedTensorImpl>(result.view(-1), nested->get_nested_sizes()), mean, rstd};
}

}  // namespace

void register_layouts() {
  auto& m = *new torch::Library(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const char* name : kFromDense) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&use_pytorchs<DispatchKey::CPU>>());
  auto& nested = *new torch::Library(torch::Library::IMPL, "aten", DispatchKey::NestedTensorPrivateUse1, __FILE__, __LINE__);
  nested.impl("_transform_bias_rescale_qkv", &nested_qkv);
  nested.impl("native_layer_norm", &nested_layer_norm);
  for (const char* name : {"_spdiags", "_validate_compressed_sparse_indices"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&use_python>());
  }
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with(kAten)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value()) continue;
    register_sparse<DispatchKey::SparseCPU>(*op, DispatchKey::SparsePrivateUse1, kCoo);
    register_sparse<DispatchKey::SparseCsrCPU>(*op, DispatchKey::SparseCsrPrivateUse1, kCompressed);
    register_nested(*op);
  }
}

}  // namespace torchtpu
