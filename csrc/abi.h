// The C ABI between PyTorch (csrc/) and the Rust core. crates/abi generates the Rust side from this file.
//
// Rules of the border: no C++ exception crosses into Rust and no Rust panic crosses into C++.
// A function that can fail returns a TtStatus; after TT_ERROR, tt_last_error() describes the failure
// of the calling thread. No function here may be called with the GIL held if it can wait for the
// device or compile, unless its comment says so.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

enum TtStatus : int32_t {
  TT_OK = 0,
  TT_ERROR = 1,
  // tt_call's answers, short of an error:
  TT_NEW_KEY = 2,      // the call's key is new: run the operator on meta tensors, then tt_define and tt_call again
  TT_REFUSED = 3,      // the operator does not take such numbers: tt_last_error() says which
  TT_OTHER_SIZES = 4,  // written arguments must take the sizes of tt_result_metas first
  TT_NEEDS_ROOM = 5,   // `outs` is too small
  // tt_define's: the table has no row for the operator; trace its decomposition.
  TT_NO_ROW = 6,
};

// PyTorch's exception types that the core can ask for.
enum TtErrorKind : int32_t {
  TT_RUNTIME_ERROR = 0,
  TT_NOT_IMPLEMENTED = 1,
  TT_OUT_OF_MEMORY = 2,
  TT_INDEX_ERROR = 3,
  TT_TYPE_ERROR = 4,
  TT_VALUE_ERROR = 5,
  TT_LINALG_ERROR = 6,
};

// at::Float32MatmulPrecision, by the names that torch.set_float32_matmul_precision takes but for "medium".
enum TtPrecision : int32_t {
  TT_DEFAULT = 0,
  TT_HIGH = 1,
  TT_HIGHEST = 2,
};

enum TtLayout : int32_t {
  TT_DENSE = 0,
  TT_COO = 1,
  TT_COMPRESSED = 2,  // CSR, CSC, BSR, BSC
  TT_NESTED = 3,      // of the strided layout
};

enum TtOwner : int32_t {
  TT_OTHER = 0,    // whoever else has one
  TT_PYTORCH = 1,  // the CPU's, which only calls operators of the dense tensors inside
  TT_PYTHON = 2,   // python/torchtpu/operators/sparse, which refuses what it has not
};

struct TtError {
  TtErrorKind kind;
  const char* message;  // valid until the thread's next failing call
  size_t length;
};

enum TtTag : uint8_t {
  TT_NONE = 0,
  TT_TENSOR = 1,         // a tensor of this backend: `tensor`
  TT_SCALAR_TENSOR = 2,  // a 0-d CPU tensor standing among device tensors: value in the union, `dtype`, `wrapped`
  TT_INT = 3,            // int, SymInt, MemoryFormat, Layout; Scalar holding an integer: `i`
  TT_FLOAT = 4,          // float; Scalar holding a float: `f`
  TT_BOOL = 5,           // bool; Scalar holding a bool: `i`
  TT_COMPLEX = 6,        // Scalar holding a complex number: `c`
  TT_STRING = 7,         // `p` to `length` bytes of UTF-8
  TT_DTYPE = 8,          // ScalarType: `i`
  TT_INTS = 9,           // `p` to `length` int64_t
  TT_FLOATS = 10,        // `p` to `length` double
  TT_BOOLS = 11,         // `p` to `length` uint8_t
  TT_LIST = 12,          // `p` to `length` TtArg: Tensor[], Tensor?[], Scalar[]
  TT_GENERATOR = 13,     // the call draws from this generator: `p` is its TtGenerator
  TT_IGNORED = 14,       // Device, Stream, pin_memory: never decides a program
};

struct TtTensor {
  void* storage;  // the DataPtr's context
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;  // in elements
  int32_t ndim;
  int8_t dtype;     // c10::ScalarType
  uint8_t is_conj;  // PyTorch's lazy conjugation: the tensor shows the conjugate of what the storage holds
  uint8_t is_neg;   // likewise for negation
};

struct TtArg {
  TtTag tag;
  int8_t dtype;     // of a TT_SCALAR_TENSOR
  uint8_t wrapped;  // of a TT_SCALAR_TENSOR: PyTorch's "wrapped number"
  uint32_t length;
  union {
    int64_t i;
    double f;
    double c[2];
    const void* p;
    TtTensor tensor;
  };
};

// A generator's state: Philox key and counter. Owned by the C++ generator, advanced by the core
// under the generator's mutex, which csrc holds during tt_call.
struct TtGenerator {
  uint64_t seed;
  uint64_t offset;
};

// One returned tensor that is not an argument. `storage` is owned by the receiver, who wraps it in
// a DataPtr whose deleter is tt_storage_release. `sizes` and `strides` live as long as the process.
struct TtOut {
  void* storage;  // null: an undefined tensor
  void* data;  // the address to show as data_ptr(): inside a PROT_NONE reservation
  size_t nbytes;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;
  int32_t ndim;
  int8_t dtype;
};

// What the operator's meta kernel says of one returned or mutated tensor, in the order in which a
// row returns them: mutated arguments in schema order first (lists flattened), then fresh returns.
struct TtMeta {
  const int64_t* sizes;
  const int64_t* strides;
  int32_t ndim;  // -1: the result is an undefined tensor (masked out)
  int8_t dtype;
};

// ---- operators -------------------------------------------------------------------------------

// One argument of an operator's schema.
struct TtSchemaArg {
  const char* name;
  const char* type;   // the schema's type as text: "Tensor", "Tensor?", "Tensor[]", "Scalar", "float?", "int[]", …
  uint8_t is_mutated; // the operator writes it
  uint8_t is_out;     // keyword-only and mutated: an out= argument
  uint8_t has_default;
  TtTag default_tag;  // TT_INT, TT_FLOAT, TT_BOOL for numbers, else TT_NONE
  double default_value;
};

// Registers an operator and returns its id (>= 0). `name` is "add.Tensor", or "add_.Tensor", or
// "add.out"; operators outside aten keep their namespace: "quantized::…". `functional` names the
// operator whose row computes the mutated arguments of an in-place or out= form ("add.Tensor"), or
// equals `name`. *has_row says whether the table can lower it. Sets `is_mutated` of arguments that the operator writes
// although its schema does not say so. Cheap: called for thousands of operators.
int32_t tt_register_operator(const char* name, const char* functional, TtSchemaArg* args, size_t n_args, uint8_t* has_row);

// Calls an operator. `outs` has room for `*n_outs` fresh results (a Tensor[] return is flattened); the
// count written is in `*n_outs`, or, with TT_NEEDS_ROOM, the room needed. `device` is the index of the device.
TtStatus tt_call(int32_t op, const TtArg* args, size_t n_args, int32_t device, TtGenerator* default_generator,
                 TtOut* outs, size_t* n_outs);

// Whether callers should say before a call in which scope of joined calls they are: 0 is none.
uint8_t tt_wants_scope();
void tt_note_scope(uint64_t scope);

// Whether callers should say on which line of the user's program they stand: by tt_note_line before a call, or by
// tt_locate_last_call after it where this turned true during the call. Both take the GIL.
uint8_t tt_wants_line();
void tt_note_line();
void tt_locate_last_call(int32_t device);

// After TT_OTHER_SIZES: the sizes that the out= arguments must take, in the order of the written arguments. Fills at most
// *n_metas and writes the count.
TtStatus tt_result_metas(int32_t op, const TtArg* args, size_t n_args, TtMeta* metas, size_t* n_metas);

// Lowers a new key. `metas` may be null (no meta kernel, or sizes that data decides). `graph` is 0 or
// the handle that the Python tracer returned. May compile nothing yet: compilation happens at the flush.
// *follows_precision says whether tt_set_matmul_precision matters to the operator, as far as is known.
TtStatus tt_define(int32_t op, const TtArg* args, size_t n_args, const TtMeta* metas, size_t n_metas,
                   uint64_t graph, uint8_t* follows_precision);

// Fails, naming the supported ones, unless tensors can be of this c10::ScalarType.
TtStatus tt_check_dtype(int8_t scalar_type);

// The operator whose results look as this one's do, and whose meta kernel is to be asked instead; null if it has its own.
// The name is of `*length` bytes, has an overload, and lives as long as the process.
const char* tt_shapes_like(const char* name, size_t* length);

// Whose kernel serves an operator, by its name without "aten::", on tensors of a layout for which PyTorch's CPU has one.
TtOwner tt_owner_of_kernel(TtLayout layout, const char* name);

// Counts one call that ran on the CPU because the user switched the fallback on.
void tt_count_fallback(int32_t op);

// How exactly float32 products are computed from now on.
void tt_set_matmul_precision(TtPrecision precision);

const TtError* tt_last_error();

// ---- storages --------------------------------------------------------------------------------

// A new uninitialised storage of `nbytes` on `device`; nothing is allocated on the device until it is
// written. *data receives the address to show.
TtStatus tt_storage_new(int32_t device, size_t nbytes, void** storage, void** data);
void tt_storage_release(void* storage);
// The live storage that showed the address `data` lies in, and the place of `data` in it; null when there is
// none. The caller keeps the storage alive by other means. Slow: for memory that somebody else wrapped.
void* tt_storage_at(const void* data, size_t* byte_offset);
// Grows or shrinks, keeping the common prefix.
TtStatus tt_storage_resize(void* storage, size_t nbytes, void** data);

// Copies `nbytes` of dense row-major host data, shaped and typed as `destination`, into it. With
// `may_borrow`, `data` stays valid and unchanged until `release(owner)` is called (from any thread);
// otherwise it is copied before the call returns and `release` is not called (may be null).
TtStatus tt_copy_from_host(const TtTensor* destination, const void* data, size_t nbytes, uint8_t may_borrow,
                           void* owner, void (*release)(void*));
// Waits for the value and copies it out, dense and row-major.
TtStatus tt_copy_to_host(const TtTensor* source, void* data, size_t nbytes);
// Copies between two devices; both dense, same dtype and sizes.
TtStatus tt_copy_across(const TtTensor* source, const TtTensor* destination);

// ---- jobs ------------------------------------------------------------------------------------

// Work of the host on values of a device, in the device's order (crates/engine/src/host_job.rs).
struct TtJob {
  const char* name;  // for errors
  uint64_t lane;     // jobs of a lane run in the order in which they were posted
  const TtTensor* inputs;
  size_t n_inputs;
  const TtTensor* outputs;
  const int32_t* initial;  // of each output: the input that its memory begins as a copy of, or -1
  size_t n_outputs;
  void* context;
  // Called once, from any thread, without the GIL: reads the inputs and writes the outputs, dense and row-major. Returns
  // 0, or writes a message of at most `capacity` bytes and returns -1.
  int32_t (*run)(void* context, void* const* inputs, void* const* outputs, char* message, size_t capacity);
  // Called when `context` is no longer needed, from any thread.
  void (*release)(void* context);
};

uint64_t tt_open_lane();
void tt_close_lane(uint64_t lane);
// Waits until the posted jobs of these lanes have ended, successfully or not, for at most so many milliseconds. Fails if
// some have not ended by then.
TtStatus tt_finish_lanes(const uint64_t* lanes, size_t count, int64_t milliseconds);
// Posts a job, and takes over its context, also where it fails. The outputs have their new values from then on.
TtStatus tt_post_job(int32_t device, const TtJob* job, uint64_t* ticket);

enum TtTicketState : int32_t {
  TT_RUNNING = 0,
  TT_DONE = 1,
  TT_FAILED = 2,
};
TtTicketState tt_ticket_state(uint64_t ticket);
// Waits for a job's end, for at most so many milliseconds (-1: for ever); its error is the call's.
TtStatus tt_ticket_wait(uint64_t ticket, int64_t milliseconds);
void tt_ticket_release(uint64_t ticket);
// Whether calls wait for what they compute, as in Debug mode.
uint8_t tt_is_synchronous();

// ---- devices ---------------------------------------------------------------------------------

// Opens the plugin on first use. -1 after a failure (see tt_last_error).
int32_t tt_device_count();
// 1 when a plugin can be found; never raises, does not open the plugin.
uint8_t tt_is_available();
// True once the plugin is open.
uint8_t tt_is_initialized();
// Flushes what is recorded and waits for all work queued on a device (-1: every device).
TtStatus tt_synchronize(int32_t device);
// Flushes what is recorded without waiting.
TtStatus tt_flush();

// An event: the point that the work queued so far on `device` has reached.
TtStatus tt_event_new(int32_t device, uint64_t* event);
TtStatus tt_event_query(uint64_t event, uint8_t* done);
TtStatus tt_event_wait(uint64_t event);
// Milliseconds between the moments at which the two were seen to be done; waits for both.
TtStatus tt_event_elapsed(uint64_t start, uint64_t end, double* milliseconds);
void tt_event_release(uint64_t event);

struct TtMemory {
  int64_t allocated, peak_allocated;  // bytes of live storages that hold a value
  int64_t total_allocated, total_freed;
  int64_t live, peak_live;            // count of those storages
  int64_t out_of_memory;              // count of failures
  int64_t free, total;                // bytes of the device, as the plugin or the host says
};
TtStatus tt_memory(int32_t device, TtMemory* memory);
TtStatus tt_reset_peak_memory(int32_t device);
TtStatus tt_empty_cache();

// ---- profiler --------------------------------------------------------------------------------

// A run of a program on a device.
struct TtDeviceRun {
  const char* name;  // of the program; UTF-8, as long as the callback lasts
  size_t name_length;
  const char* operators;  // all of its operators; as the name
  size_t operators_length;
  int64_t begin, end;  // nanoseconds since 1970
  uint64_t caller;     // the operator that made it run, as tt_profile_enter has named it; 0 if there is none
  double flops, bytes;  // what the compiler reckons; negative where it does not
  int32_t device;
};
// Begins to write down what devices run.
TtStatus tt_profile_begin();
// Ends it, waits for the devices, and hands over the runs in their order.
TtStatus tt_profile_end(void* context, void (*receive)(void* context, const TtDeviceRun* run));
// The thread enters an operator that the profiler has numbered, or leaves the one that it entered last.
void tt_profile_enter(uint64_t number);
void tt_profile_leave();

// ---- csrc, called from Rust ------------------------------------------------------------------

// Registers allocator, guard, hooks, generator and kernels with PyTorch. Called once, at import, with
// the GIL held. `tracer` is a PyObject* (borrowed; kept): called as tracer(op_overload, args, kwargs)
// with the GIL held, it returns an int, the handle of the traced graph for tt_define, or raises. `sparse` is
// another: it returns the results of an operator on sparse tensors, or raises.
// Returns 0, or writes a message of at most `capacity` bytes and returns -1.
int32_t tt_initialize(void* tracer, void* sparse, char* message, size_t capacity);

// How a compiled graph is called.
struct TtGraph {
  int32_t op;  // the operator that it is registered as
  int32_t device;
  const uint8_t* kinds;  // of each input: 't' a tensor, 'n' a number, '-' one that the graph does not take
  size_t n_inputs;
  const int32_t* sources;  // of each output: k is the k-th fresh result, -1 - k the k-th input itself, INT32_MIN None
  size_t n_outputs;
  size_t n_fresh;
};

// Calls a compiled graph, without the GIL, which it takes where it needs it. `inputs` is a Python list (borrowed). Returns a new reference to the list
// of outputs, or null with a Python exception set.
void* tt_call_graph(const TtGraph* graph, void* inputs);

// The core's handle of a tensor's storage, borrowed, or null with a Python exception set if the core does not own the
// memory. `tensor` is a Python object (borrowed). With the GIL held.
void* tt_storage_of(void* tensor);

// A new reference to a c10d backend that runs its collectives through `gloo`, a backend of the same ranks, or null with a
// Python exception set. Through `store` the ranks tell each other where they have waited when a collective fails. Both are
// borrowed Python objects. With the GIL held.
void* tt_process_group(void* gloo, void* store, int64_t timeout_milliseconds);

int32_t tt_current_device();
void tt_set_current_device(int32_t device);
// A new reference to the torch.Generator object of a device's default generator, or null with a
// Python exception set.
void* tt_default_generator(int32_t device);
}
