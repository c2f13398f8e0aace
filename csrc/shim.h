// Declarations that the files of the shim share. Each other file is one integration point with PyTorch.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "abi.h"

// Declared here, because the header includes all of TorchScript.
namespace torch::jit::tracer {
struct TracingState;
TORCH_API const std::shared_ptr<TracingState>& getTracingState();
TORCH_API void setTracingState(std::shared_ptr<TracingState> state);
}  // namespace torch::jit::tracer

namespace torchtpu {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;

inline c10::Device device_at(int32_t index) {
  return {kDevice, static_cast<c10::DeviceIndex>(index)};
}

// ---- errors (errors.cpp) ---------------------------------------------------------------------

// Throws the calling thread's last error of the core as PyTorch's exception of that kind.
[[noreturn]] void throw_last_error();
std::string last_error_message();
// Runs work for the core. Returns 0, or -1 after an exception; `message` then has its text, cut to `capacity`.
int32_t guarded(const std::function<void()>& work, char* message, size_t capacity);

inline void check(TtStatus status) {
  if (status != TT_OK) [[unlikely]] throw_last_error();
}

// Whether the current exception only says that meta tensors cannot decide the result. Otherwise it is the user's error.
bool means_no_metas();
// Whether the current exception says that select was called on an empty dimension.
bool is_select_of_empty();
// Rethrows the current exception, with the name of the substitute device replaced by the device of the call.
[[noreturn]] void rethrow_for(int32_t device, std::string_view substitute);

// Releases the GIL if this thread holds it, because a wait for the device must not block Python.
class NoGil {
 public:
  NoGil();
  ~NoGil();
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  void* state_;
};

// Hides what an operator does from torch.jit.trace, for which sizes of tensors are tensors in Python. The tracer's state
// cannot be set where PyTorch has excluded its dispatch key, as inside nested tensors.
class NotTraced {
 public:
  NotTraced() {
    if (!torch::jit::tracer::getTracingState() || c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Tracer)) return;
    state_ = torch::jit::tracer::getTracingState();
    torch::jit::tracer::setTracingState(nullptr);
  }
  ~NotTraced() {
    if (state_) torch::jit::tracer::setTracingState(std::move(state_));
  }
  NotTraced(const NotTraced&) = delete;
  NotTraced& operator=(const NotTraced&) = delete;

 private:
  std::shared_ptr<torch::jit::tracer::TracingState> state_;
};

// ---- devices (guard.cpp) ---------------------------------------------------------------------

int32_t current_device();
// The device's index, or the current device's for a device named without one.
int32_t index_of(const std::optional<c10::Device>& device);

// ---- memory (allocator.cpp, memory_history.cpp) ------------------------------------------------------

enum class Change { kRefused = 0, kMade = 1, kReleased = -1 };
// Whether a history of memory is recorded.
extern std::atomic<bool> records_memory;
void note_memory(Change change, const void* address, size_t nbytes, int32_t device);
// Adds the error of a device without memory, if a history is recorded.
void note_out_of_memory();

c10::Allocator* allocator();
c10::Allocator* pinned_allocator();
// The deleter of this backend's storages.
void release_storage(void* storage);
void resize_storage(const c10::Storage& storage, size_t nbytes);
// Wraps a result of the core in a tensor, which takes ownership.
at::Tensor adopt(const TtOut& out, int32_t device);

// ---- randomness (generator.cpp) --------------------------------------------------------------

struct TpuGenerator final : c10::GeneratorImpl {
  explicit TpuGenerator(int32_t device);
  static c10::DeviceType device_type() { return kDevice; }

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return state.seed; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override { state.offset = offset; }
  uint64_t get_offset() const override { return state.offset; }
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  TpuGenerator* clone_impl() const override;

  TtGenerator state;
};

const at::Generator& default_generator(int32_t device);

// ---- operators (operators.cpp, kernels.cpp, indices.cpp, define.cpp, decompose.cpp) ----------------

enum class ArgKind : uint8_t {
  kValue,      // given by the IValue's tag
  kDtype,      // an int that is a ScalarType
  kIgnored,    // Device, Stream, pin_memory: never decides a program
  kIndexList,  // Tensor?[]: PyTorch lets indices live on the CPU
};

// What the hot path needs of an operator. It is read from the schema once.
struct Operator {
  explicit Operator(const c10::OperatorHandle& handle);

  c10::OperatorHandle handle;
  // Computes the written arguments of an in-place or out= form; otherwise the operator itself.
  c10::OperatorHandle functional;
  std::string name;
  int32_t id = -1;
  TtRowFacts row{};
  // Whether the precision of float32 products may decide its program; known after its first definition.
  mutable std::atomic<bool> follows_precision{false};
  bool draws = false;      // may draw random numbers: its generator is locked during the call
  bool has_out = false;    // an out= form, which may resize its out arguments
  bool creates = false;    // such a form that takes no other tensor
  bool supported = true;   // returns only tensors
  bool fresh_list = false; // the fresh result is one Tensor[]
  uint32_t fresh = 0;      // count of the other fresh results
  bool takes_indices = false;  // has an argument of kind kIndexList
  const char* warned_of = nullptr;  // its name in PyTorch's warning about expanded tensors, if there is one
  int32_t check_errors = -1;  // position of the argument that asks for errors of the data at the call, if it has one
  c10::SmallVector<ArgKind, 8> kinds;
  c10::SmallVector<uint32_t, 2> mutated;  // positions of the written arguments
  c10::SmallVector<int32_t, 2> returns;   // per return: the argument that it is, or -1 for a fresh one
};

// Generated by PyTorch from a meta function, shared by the functional, in-place and out= forms.
bool is_structured(const c10::OperatorHandle& handle);
bool is_view(const c10::FunctionSchema& schema);
// "add.Tensor"; operators outside aten keep their namespace.
std::string short_name(const c10::FunctionSchema& schema);
bool is_written(const c10::Argument& argument);
bool is_out(const c10::Argument& argument);

// Runs an operator on the device: takes its arguments off the stack and pushes its results.
void call_operator(const Operator& op, torch::jit::Stack* stack);
// Whether the first argument, which an operator that takes indices reads or writes at them, is on the CPU.
bool indexes_cpu_tensor(const Operator& op, const torch::jit::Stack& stack);
// Moves the indices to the device, in place on the stack.
void move_indices(const Operator& op, torch::jit::Stack* stack);
// PyTorch warns if some operators write to an expanded tensor. Returns the operator's name in the warning, or null.
const char* name_in_warning(const std::string& name);
// Gives the warning if the operator writes to an expanded tensor.
void warn_of_expanded(const Operator& op, const torch::jit::Stack& stack);
// Converts a tensor of this backend, or a 0-d CPU tensor as a number, to an argument. Returns false for other tensors.
bool convert(TtArg& arg, const at::Tensor& tensor);
// Read torch.set_float32_matmul_precision and torch.get_default_dtype. These only change PyTorch's own state, so they are
// read before each call.
void follow_matmul_precision();
void follow_default_dtype();
// Tells the core the thread's current scope.
void note_scope();
// Describes a tensor of this device for the core. Its storage is null if the core does not own the memory.
TtTensor describe(const c10::TensorImpl& tensor);
// The device of a call: that of its first tensor, else of its Device argument, else the current one.
int32_t device_of(at::ArrayRef<c10::IValue> arguments);

// The results of an operator's meta kernel. The tensors own the memory that `metas` points to.
struct Metas {
  std::vector<at::Tensor> tensors;
  std::vector<TtMeta> metas;
  bool known = false;
};
// Runs the operator on meta tensors, so that an invalid call raises PyTorch's error.
Metas infer(const Operator& op, at::ArrayRef<c10::IValue> arguments, int32_t device);
// Whether several elements of the tensor share memory, as those of an expanded tensor do.
bool overlaps_itself(const at::Tensor& tensor);
// Throws the error of PyTorch's CPU kernel for a call that the core refused.
void refuse_as_cpu(const Operator& op, at::ArrayRef<c10::IValue> arguments, int32_t device);
// Calls an operator that draws random numbers if its results have no elements, else returns false.
bool draw_nothing(const Operator& op, torch::jit::Stack* stack, int32_t device);

// The Python functions that `trace` and `call_sparse` call.
void set_python(void* tracer, void* sparse);
// The handle of the operator's traced decomposition. 0 if PyTorch has none.
uint64_t trace(const Operator& op, at::ArrayRef<c10::IValue> arguments, int32_t device);
// Runs an operator on sparse tensors.
void call_sparse(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// ---- registration (init.cpp calls these in order) ----------------------------------------------

void register_allocator();
void register_guard();
void register_hooks();
void register_views();
void register_copies();
void register_operators();
void register_layouts();
void register_fourier();
void register_composites();
void register_attention();
void register_autocast();
void register_profiler();

}  // namespace torchtpu
