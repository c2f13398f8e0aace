// The call of a compiled graph: from a Python list of inputs to a Python list of outputs, without the dispatcher.
#include <ATen/ThreadLocalPythonObjects.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <mutex>

#include "shim.h"

namespace torchtpu {
namespace {

struct Decref {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Decref>;

void convert_number(TtArg& arg, PyObject* value) {
  if (PyBool_Check(value)) {
    arg.tag = TT_BOOL;
    arg.i = value == Py_True;
  } else if (PyLong_Check(value)) {
    arg.tag = TT_INT;
    arg.i = PyLong_AsLongLong(value);
  } else {
    arg.tag = TT_FLOAT;
    arg.f = PyFloat_AsDouble(value);
  }
  if (PyErr_Occurred() != nullptr) throw python_error();
}

void convert_input(TtArg& arg, const TtGraph& graph, PyObject* value, size_t position) {
  if (graph.kinds[position] == 'n') return convert_number(arg, value);
  TORCH_CHECK_TYPE(THPVariable_Check(value), "a compiled graph takes a tensor as input ", position, ", not ",
                   Py_TYPE(value)->tp_name);
  const at::Tensor& tensor = THPVariable_Unpack(value);
  TORCH_CHECK(convert(arg, tensor) && (arg.tag != TT_TENSOR || tensor.device().index() == graph.device),
              "a compiled graph expects input ", position, " on ", device_at(graph.device), ", not on ", tensor.device());
}

TtStatus call(const TtGraph& graph, at::ArrayRef<TtArg> args, c10::SmallVector<TtOut, 8>& outs) {
  // A new key compiles, and the thread that holds the GIL may wait for the generator's mutex.
  NoGil no_gil;
  auto* generator = static_cast<TpuGenerator*>(default_generator(graph.device).unsafeGetGeneratorImpl());
  std::lock_guard lock(generator->mutex_);
  size_t count = outs.size();
  return tt_call(graph.op, args.data(), args.size(), graph.device, &generator->state, outs.data(), &count);
}

// Converts the inputs that a graph takes.
c10::SmallVector<TtArg, 32> convert_inputs(const TtGraph& graph, PyObject* inputs) {
  TORCH_CHECK(static_cast<size_t>(PyList_Size(inputs)) == graph.n_inputs, "a compiled graph takes ", graph.n_inputs,
              " inputs, not ", PyList_Size(inputs));
  follow_matmul_precision();
  follow_default_dtype();
  c10::SmallVector<TtArg, 32> args(graph.n_inputs);
  size_t taken = 0;
  for (size_t i = 0; i < graph.n_inputs; ++i) {
    if (graph.kinds[i] != '-') convert_input(args[taken++], graph, PyList_GetItem(inputs, static_cast<Py_ssize_t>(i)), i);
  }
  args.resize(taken);
  return args;
}

// An object in the thread-local state, which autograd copies to its own threads.
const std::string kScope = "torchtpu.scope";

// The address of the thread's object, or 0. Only the address is needed, so the GIL is not.
uint64_t scope_of_thread() {
  using Objects = at::impl::ThreadLocalPythonObjects;
  if (!Objects::contains(kScope)) return 0;
  return reinterpret_cast<uintptr_t>(Objects::get(kScope)->ptr(getPyInterpreter()));
}

// Python's torch._C._stash_obj_in_tls is not used: that of older versions of PyTorch takes no reference to the object.
void make_scope() {
  Owned object(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  if (object == nullptr) throw python_error();
  auto held = std::make_shared<c10::SafePyObject>(object.release(), getPyInterpreter());
  at::impl::ThreadLocalPythonObjects::set(kScope, std::move(held));
}

PyObject* call(const TtGraph& graph, PyObject* inputs) {
  const auto args = convert_inputs(graph, inputs);
  if (tt_wants_line()) tt_note_line();
  if (tt_wants_scope()) note_scope();
  c10::SmallVector<TtOut, 8> outs(graph.n_fresh);
  const TtStatus status = call(graph, args, outs);
  TORCH_CHECK(status == TT_OK || status == TT_ERROR, "internal error: a compiled graph ended with status ",
              static_cast<int>(status));
  check(status);

  c10::SmallVector<Owned, 8> fresh;
  for (const TtOut& out : outs) fresh.emplace_back(THPVariable_Wrap(adopt(out, graph.device)));
  Owned outputs(PyList_New(static_cast<Py_ssize_t>(graph.n_outputs)));
  if (outputs == nullptr) throw python_error();
  for (size_t i = 0; i < graph.n_outputs; ++i) {
    const int32_t source = graph.sources[i];
    PyObject* output = source >= 0           ? fresh[static_cast<size_t>(source)].get()
                       : source == INT32_MIN ? Py_None
                                             : PyList_GetItem(inputs, -1 - source);
    Py_XINCREF(output);
    PyList_SetItem(outputs.get(), static_cast<Py_ssize_t>(i), output);
  }
  return outputs.release();
}

}  // namespace

void note_scope() { tt_note_scope(scope_of_thread()); }

}  // namespace torchtpu

uint64_t tt_scope_of_thread() {
  HANDLE_TH_ERRORS
  if (const uint64_t scope = torchtpu::scope_of_thread()) return scope;
  torchtpu::make_scope();
  return torchtpu::scope_of_thread();
  END_HANDLE_TH_ERRORS_RET(0)
}

static void* storage_of(PyObject* value) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(value), "expected a tensor, not ", Py_TYPE(value)->tp_name);
  const at::Tensor& tensor = THPVariable_Unpack(value);
  TORCH_CHECK(tensor.has_storage() && tensor.storage().data_ptr().get_deleter() == &torchtpu::release_storage,
              "torchtpu: this backend does not own the memory of a tensor on ", tensor.device());
  return tensor.storage().data_ptr().get_context();
  END_HANDLE_TH_ERRORS
}

void* tt_storage_of(void* tensor) { return storage_of(static_cast<PyObject*>(tensor)); }

static int32_t prepare(const TtGraph* graph, void* inputs, void* prepared) {
  HANDLE_TH_ERRORS
  const auto args = torchtpu::convert_inputs(*graph, static_cast<PyObject*>(inputs));
  torchtpu::NoGil no_gil;
  torchtpu::check(tt_prepare(graph->op, args.data(), args.size(), graph->device, prepared));
  return 1;
  END_HANDLE_TH_ERRORS_RET(0)
}

int32_t tt_prepare_graph(const TtGraph* graph, void* inputs, void* prepared) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const int32_t is_prepared = prepare(graph, inputs, prepared);
  PyGILState_Release(state);
  return is_prepared;
}

static PyObject* call_with_gil(const TtGraph* graph, void* inputs) {
  HANDLE_TH_ERRORS
  return torchtpu::call(*graph, static_cast<PyObject*>(inputs));
  END_HANDLE_TH_ERRORS
}

void* tt_call_graph(const TtGraph* graph, void* inputs) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* outputs = call_with_gil(graph, inputs);
  PyGILState_Release(state);
  return outputs;
}
