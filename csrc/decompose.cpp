// Operators that call Python. Python traces those without a row through PyTorch's decompositions, once for each key.
// Operators on sparse tensors, and gradients of kernels, are called in Python at each call.
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/tensor_memoryformats.h>
#include <torch/library.h>

#include <algorithm>
#include <map>

#include "shim.h"

// Declared here, because its header includes all of TorchScript.
namespace torch::jit {
TORCH_PYTHON_API py::object toPyObject(c10::IValue value);
TORCH_PYTHON_API c10::IValue toIValue(py::handle object, const c10::TypePtr& type, std::optional<int32_t> N);
}

namespace torchtpu {
namespace {

using c10::IValue;

// Python functions of (operator, args, kwargs).
PyObject* g_tracer = nullptr;
PyObject* g_sparse = nullptr;

py::object to_python(const IValue& value, const c10::Type& type) {
  if (value.isInt()) {  // the dispatcher keeps these enumerations as ints
    const int64_t number = value.toInt();
    if (const auto* optional = type.castRaw<c10::OptionalType>()) return to_python(value, *optional->getElementType());
    switch (type.kind()) {
      case c10::TypeKind::ScalarTypeType:
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<c10::ScalarType>(number))));
      case c10::TypeKind::LayoutType:
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<c10::Layout>(number))));
      case c10::TypeKind::MemoryFormatType:
        return py::reinterpret_borrow<py::object>(torch::utils::getTHPMemoryFormat(static_cast<c10::MemoryFormat>(number)));
      default: break;
    }
  }
  return torch::jit::toPyObject(value);
}

struct PythonArguments {
  py::tuple args;
  py::dict kwargs;
};

// A function written in Python may not have every argument, so arguments with their default value are left out.
PythonArguments to_python(const c10::FunctionSchema& schema, at::ArrayRef<IValue> values) {
  const auto& parameters = schema.arguments();
  const auto is_default = [&](size_t i) {
    const auto& value = parameters[i].default_value();
    return value.has_value() && *value == values[i];
  };
  size_t positional = 0;
  for (size_t i = 0; i < values.size() && !parameters[i].kwarg_only(); ++i) {
    if (!is_default(i)) positional = i + 1;
  }
  PythonArguments taken{py::tuple(positional), py::dict()};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i < positional) {
      taken.args[i] = to_python(values[i], *parameters[i].real_type());
    } else if (parameters[i].kwarg_only() && !is_default(i)) {
      taken.kwargs[parameters[i].name().c_str()] = to_python(values[i], *parameters[i].real_type());
    }
  }
  return taken;
}

py::object call(PyObject* function, const c10::OperatorHandle& op, const PythonArguments& taken) {
  NotTraced not_traced;
  return py::reinterpret_borrow<py::object>(function)(torch::detail::getTorchApiFunction(op), taken.args, taken.kwargs);
}

// Calls a Python function in place of an operator: takes the arguments off the stack and pushes the results.
void call(PyObject* function, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  py::gil_scoped_acquire gil;
  const auto& schema = op.schema();
  const py::object result = call(function, op, to_python(schema, torch::jit::last(*stack, schema.arguments().size())));
  torch::jit::drop(*stack, schema.arguments().size());
  const auto& returns = schema.returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    const py::object item = returns.size() == 1 ? result : py::object(result[py::int_(i)]);
    stack->push_back(torch::jit::toIValue(item, returns[i].real_type(), std::nullopt));
  }
}

bool requires_grad(const IValue& value) {
  if (value.isTensor()) return value.toTensor().requires_grad();
  return value.isList() && std::ranges::any_of(value.toListRef(), requires_grad);
}

// A kernel for autograd's keys. It calls Python only where a gradient is needed. The function is never released: the
// dispatcher destroys its kernels when Python has ended.
struct Gradient final : c10::OperatorKernel {
  explicit Gradient(PyObject* function) : function(function) { Py_INCREF(function); }
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    if (c10::GradMode::is_enabled() &&
        std::ranges::any_of(torch::jit::last(*stack, op.schema().arguments().size()), requires_grad)) {
      return call(function, op, stack);
    }
    at::AutoDispatchBelowAutograd below;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
  PyObject* function;
};

}  // namespace

void set_python(void* tracer, void* sparse) {
  g_tracer = static_cast<PyObject*>(tracer);
  g_sparse = static_cast<PyObject*>(sparse);
  Py_XINCREF(g_tracer);
  Py_XINCREF(g_sparse);
}

uint64_t trace(const Operator& op, at::ArrayRef<IValue> arguments, int32_t device) {
  py::gil_scoped_acquire gil;
  // A write is traced through the operator that computes the written value. The core writes it back.
  std::vector<IValue> values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (op.functional == op.handle || !is_out(op.handle.schema().arguments()[i])) values.push_back(arguments[i]);
  }
  const PythonArguments taken = to_python(op.functional.schema(), values);
  try {
    return call(g_tracer, op.functional, taken).cast<uint64_t>();
  } catch (py::error_already_set& error) {
    if (error.matches(PyExc_NotImplementedError)) return 0;
    refuse_as_cpu(op, arguments, device);
    throw;
  }
}

void call_sparse(const c10::OperatorHandle& op, torch::jit::Stack* stack) { call(g_sparse, op, stack); }

}  // namespace torchtpu

int32_t tt_set_gradient(const char* op, void* function, char* message, size_t capacity) {
  const auto set = [&] {
    static auto* kernels = new std::map<std::string, c10::RegistrationHandleRAII>();
    kernels->erase(op);
    if (function == nullptr) return;
    auto kernel = std::make_unique<torchtpu::Gradient>(static_cast<PyObject*>(function));
    kernels->emplace(op, c10::Dispatcher::singleton().registerImpl(
                             {op, ""}, c10::DispatchKey::Autograd, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)),
                             std::nullopt, nullptr, "torchtpu"));
  };
  return torchtpu::guarded(set, message, capacity);
}
