// Exceptions: raises the core's errors as PyTorch's, and classifies the errors of meta kernels.
#include <Python.h>
#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "messages.h"
#include "shim.h"

namespace torchtpu {

std::string last_error_message() {
  const TtError* error = tt_last_error();
  TORCH_CHECK(error != nullptr, "torchtpu: the core failed without saying why");
  return {error->message, error->length};
}

// Throws the Python exception that is set in this thread. Needs the GIL.
[[noreturn]] static void throw_python_exception() {
  python_error error;
  error.persist();
  throw error;
}

// Throws the Python exception of this thread if there is one: the core ends a wait where a signal handler has raised.
static void throw_exception_of_signal_handler() {
  if (!Py_IsInitialized()) return;
  pybind11::gil_scoped_acquire gil;
  if (PyErr_Occurred()) throw_python_exception();
}

void throw_last_error() {
  const std::string message = last_error_message();
  throw_exception_of_signal_handler();
  const TtError* error = tt_last_error();
  switch (error->kind) {
    case TT_NOT_IMPLEMENTED: C10_THROW_ERROR(NotImplementedError, message);
    case TT_OUT_OF_MEMORY: note_out_of_memory(); C10_THROW_ERROR(OutOfMemoryError, message);
    case TT_INDEX_ERROR: C10_THROW_ERROR(IndexError, message);
    case TT_TYPE_ERROR: C10_THROW_ERROR(TypeError, message);
    case TT_VALUE_ERROR: C10_THROW_ERROR(ValueError, message);
    case TT_LINALG_ERROR: C10_THROW_ERROR(LinAlgError, message);
    case TT_RUNTIME_ERROR: break;
  }
  C10_THROW_ERROR(Error, message);
}

int32_t guarded(const std::function<void()>& work, char* message, size_t capacity) {
  std::string failure;
  try {
    work();
    return 0;
  } catch (const c10::Error& error) {
    failure = error.what_without_backtrace();
  } catch (const std::exception& error) {
    failure = error.what();
  } catch (...) {
    failure = "unknown C++ exception";
  }
  if (capacity > 0) {
    const size_t length = std::min(failure.size(), capacity - 1);
    std::memcpy(message, failure.data(), length);
    message[length] = '\0';
  }
  return -1;
}

// Meta kernels written in Python raise NotImplementedError, or one of FakeTensor's own classes if the result depends
// on data. An AttributeError is their own mistake: some take only FakeTensors, and some expect a tensor that is optional.
static bool python_means_no_metas(PyObject* type) {
  if (PyErr_GivenExceptionMatches(type, PyExc_NotImplementedError)) return true;
  if (PyErr_GivenExceptionMatches(type, PyExc_AttributeError)) return true;
  return messages::contains_any(PyExceptionClass_Name(type), messages::kDataDecide);
}

bool means_no_metas() {
  try {
    throw;
  } catch (const c10::NotImplementedError& error) {
    return messages::contains_any(error.what_without_backtrace(), messages::kNoMetaKernel);
  } catch (python_error& error) {
    pybind11::gil_scoped_acquire gil;
    error.persist();  // it may still be in the thread's error indicator
    return python_means_no_metas(error.type) || messages::contains_any(error.message.c_str(), messages::kNoDataInMeta);
  } catch (pybind11::error_already_set& error) {
    pybind11::gil_scoped_acquire gil;
    return python_means_no_metas(error.type().ptr()) || messages::contains_any(error.what(), messages::kNoDataInMeta);
  } catch (const c10::Error& error) {
    // what() would name the functions of the backtrace, which takes milliseconds.
    return messages::contains_any(error.what_without_backtrace(), messages::kNoDataInMeta);
  } catch (const std::exception& error) {
    return messages::contains_any(error.what(), messages::kNoDataInMeta);
  }
}

bool is_select_of_empty() {
  try {
    throw;
  } catch (const c10::IndexError& error) {
    return messages::contains_any(error.what_without_backtrace(), messages::kNoFirstSlice);
  } catch (...) {
    return false;
  }
}

// Replaces the name of a replacement tensor's device, as a whole word, by the device that the user has written. Parts of
// paths and of dotted names stay: "native/cpu/Sort.cpp", "torch.cpu.amp".
static std::string renamed(std::string message, std::string_view substitute, const std::string& device) {
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  auto is_slash = [](char c) { return c == '/' || c == '\\'; };
  for (size_t at = 0; (at = message.find(substitute, at)) != std::string::npos;) {
    const size_t end = at + substitute.size();
    const char before = at == 0 ? ' ' : message[at - 1];
    const char after = end == message.size() ? ' ' : message[end];
    // A dot ends a sentence, unless a name goes on after it.
    const bool goes_on = after == '.' && end + 1 < message.size() && is_word(message[end + 1]);
    const bool is_part = is_word(before) || is_slash(before) || before == '.' || is_word(after) || is_slash(after) || goes_on;
    if (is_part) {
      at = end;
    } else {
      message.replace(at, substitute.size(), device);
      at += device.size();
    }
  }
  return message;
}

// Throws a Python exception of the same type with the renamed message, if that differs. Needs the GIL.
static void throw_renamed(PyObject* type, const std::string& before, std::string_view substitute, int32_t device) {
  const std::string message = renamed(before, substitute, device_at(device).str());
  if (message == before) return;
  PyErr_SetString(type, message.c_str());
  throw_python_exception();
}

void rethrow_for(int32_t device, std::string_view substitute) {
  try {
    throw;
  } catch (const c10::Error& error) {
    const std::string& before = error.msg();
    const std::string message = renamed(before, substitute, device_at(device).str());
    if (message == before) throw;
    if (dynamic_cast<const c10::IndexError*>(&error)) C10_THROW_ERROR(IndexError, message);
    if (dynamic_cast<const c10::TypeError*>(&error)) C10_THROW_ERROR(TypeError, message);
    if (dynamic_cast<const c10::ValueError*>(&error)) C10_THROW_ERROR(ValueError, message);
    if (dynamic_cast<const c10::LinAlgError*>(&error)) C10_THROW_ERROR(LinAlgError, message);
    if (dynamic_cast<const c10::NotImplementedError*>(&error)) C10_THROW_ERROR(NotImplementedError, message);
    C10_THROW_ERROR(Error, message);
  } catch (python_error& error) {
    pybind11::gil_scoped_acquire gil;
    error.persist();
    throw_renamed(error.type, error.message, substitute, device);
    throw;
  } catch (pybind11::error_already_set& error) {
    pybind11::gil_scoped_acquire gil;
    throw_renamed(error.type().ptr(), pybind11::str(error.value()), substitute, device);
    throw;
  }
}

NoGil::NoGil() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

NoGil::~NoGil() {
  if (state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

}  // namespace torchtpu
