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
  // Other results of tt_call:
  TT_NEW_KEY = 2,      // the call's key is new: run the operator on meta tensors, then tt_define and tt_call again
  TT_REFUSED = 3,      // the operator's row does not accept these numbers: tt_last_error() names them
  TT_OTHER_SIZES = 4,  // resize the out= arguments first: tt_result_metas has the sizes
  TT_NEEDS_ROOM = 5,   // `outs` is too small
  // A result of tt_define: the operator has no row in the table. Trace its decomposition.
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

// at::Float32MatmulPrecision. For TT_DEFAULT, torch.set_float32_matmul_precision takes "medium".
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
  TT_OTHER = 0,    // this backend's kernel for dense tensors, or none
  TT_PYTORCH = 1,  // the CPU's kernel, which only calls operators of the dense tensors inside
  TT_PYTHON = 2,   // python/torchtpu/operators/layouts.py
};

struct TtError {
  TtErrorKind kind;
  const char* message;  // valid until the thread's next failing call
  size_t length;
};

enum TtTag : uint8_t {
  TT_NONE = 0,
  TT_TENSOR = 1,         // a tensor of this backend: `tensor`
  TT_SCALAR_TENSOR = 2,  // a 0-d CPU tensor beside device tensors: value in the union, `dtype`, `wrapped`
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
  TT_IGNORED = 14,       // Device, Stream, pin_memory: no program depends on it
};

struct TtTensor {
  void* storage;  // the DataPtr's context
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;  // in elements
  int32_t ndim;
  int8_t dtype;     // c10::ScalarType
  uint8_t is_conj;  // PyTorch's lazy conjugation: the tensor is the conjugate of what the storage holds
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

// A generator's state: Philox key and counter. The C++ generator owns it. The core advances it during tt_call, while csrc
// holds the generator's mutex.
struct TtGenerator {
  uint64_t seed;
  uint64_t offset;
};

// One returned tensor that is not an argument. The caller owns `storage`, and wraps it in a DataPtr whose deleter is
// release_storage. `sizes` and `strides` live as long as the process.
struct TtOut {
  void* storage;  // null: an undefined tensor
  void* data;  // what data_ptr() returns: an address that cannot be read or written
  size_t nbytes;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;
  int32_t ndim;
  int8_t dtype;
};

// The result of the operator's meta kernel for one returned or mutated tensor, in the order in which a
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

// Facts about an operator's row.
struct TtRowFacts {
  uint8_t exists;          // the table has a row for it
  uint8_t raises_at_call;  // errors of its data are raised at the call, as on a GPU
};

// Registers an operator and returns its id (>= 0). `name` is "add.Tensor", or "add_.Tensor", or
// "add.out"; operators outside aten keep their namespace: "quantized::…". `functional` names the
// operator whose row computes the mutated arguments of an in-place or out= form ("add.Tensor"), or
// equals `name`. Sets `is_mutated` of arguments that the operator writes although its schema does not say so. It is called
// for thousands of operators, so it must be fast.
int32_t tt_register_operator(const char* name, const char* functional, TtSchemaArg* args, size_t n_args, TtRowFacts* row);

// Calls an operator. `outs` has room for `*n_outs` fresh results (a Tensor[] return is flattened); the
// count written is in `*n_outs`, or, with TT_NEEDS_ROOM, the room needed. `device` is the index of the device.
TtStatus tt_call(int32_t op, const TtArg* args, size_t n_args, int32_t device, TtGenerator* default_generator,
                 TtOut* outs, size_t* n_outs);

// Begins to make the program of a call of a compiled graph in the background. `prepared` is what the caller of
// tt_prepare_graph gave.
TtStatus tt_prepare(int32_t op, const TtArg* args, size_t n_args, int32_t device, void* prepared);

// Whether the caller should pass its scope to tt_note_scope before a call. The calls of a scope join one program; 0 is no
// scope.
uint8_t tt_wants_scope();
void tt_note_scope(uint64_t scope);

// Whether the caller should report the line of the user's program: by tt_note_line before a call, or by
// tt_locate_last_call after it if this has become true during the call. Both take the GIL.
uint8_t tt_wants_line();
void tt_note_line();
void tt_locate_last_call(int32_t device);

// After TT_OTHER_SIZES: the sizes that the out= arguments must have, in the order of the written arguments. Writes at most
// *n_metas of them, and their number to *n_metas.
TtStatus tt_result_metas(int32_t op, const TtArg* args, size_t n_args, TtMeta* metas, size_t* n_metas);

// Lowers a new key of a call on a device. `metas` may be null (no meta kernel, or sizes that depend on data). `graph` is 0 or
// the handle that the Python tracer returned. Nothing is compiled before the flush. *follows_precision says whether a lowering
// of the operator has depended on tt_set_matmul_precision so far.
TtStatus tt_define(int32_t op, const TtArg* args, size_t n_args, const TtMeta* metas, size_t n_metas,
                   uint64_t graph, int32_t device, uint8_t* follows_precision);

// Fails if tensors cannot be of this c10::ScalarType. The error names those that they can be of.
TtStatus tt_check_dtype(int8_t scalar_type);

// The operator whose meta kernel gives this operator's results; null if that is its own. The name has `*length` bytes, an
// overload, and lives as long as the process.
const char* tt_shapes_like(const char* name, size_t* length);

// The kernel for an operator on tensors of a layout. PyTorch's CPU has a kernel for it. `name` has no "aten::".
TtOwner tt_owner_of_kernel(TtLayout layout, const char* name);

// Before an operator that has neither row nor decomposition runs on the CPU. Counts the call. Fails unless
// TORCHTPU_CPU_FALLBACK allows it. *is_first says whether it is the operator's first such call.
TtStatus tt_fall_back(int32_t op, const TtArg* args, size_t n_args, int32_t device, uint8_t* is_first);

// The precision of float32 products from now on.
void tt_set_matmul_precision(TtPrecision precision);

// Sets the default dtype, as torch.set_default_dtype() does; a c10::ScalarType.
void tt_set_default_dtype(int8_t scalar_type);

const TtError* tt_last_error();

// ---- storages --------------------------------------------------------------------------------

// A new uninitialised storage of `nbytes` on `device`; nothing is allocated on the device until it is
// written. *data receives what data_ptr() returns.
TtStatus tt_storage_new(int32_t device, size_t nbytes, void** storage, void** data);
void tt_storage_release(void* storage);
// The size, device and address of a live storage, for the profiler.
void tt_storage_described(const void* storage, size_t* nbytes, int32_t* device, void** data);
// The live storage that has the address `data`, and the offset of `data` in it; null if there is none. The caller keeps the
// storage alive by other means. This is slow: it is for memory that another library has wrapped.
void* tt_storage_at(const void* data, size_t* byte_offset);
// Grows or shrinks a storage. The common prefix keeps its values.
TtStatus tt_storage_resize(void* storage, size_t nbytes, void** data);

// Copies dense row-major host data, shaped and typed as `destination`, into it. With an `owner`, `data` stays valid and
// unchanged until `release(owner)` is called (from any thread). If `owner` is null, the data is copied before the call
// returns, and `release` is not called.
TtStatus tt_copy_from_host(const TtTensor* destination, const void* data, void* owner, void (*release)(void*));
// Waits for the value and copies it out, dense and row-major.
TtStatus tt_copy_to_host(const TtTensor* source, void* data, size_t nbytes);
// Copies between two devices; both dense, same dtype and sizes.
TtStatus tt_copy_across(const TtTensor* source, const TtTensor* destination);
// Copies bytes within a device, where both tensors show all bytes of their storages and the value has another element
// type, which the copy keeps. Otherwise *is_done is 0.
TtStatus tt_copy_bytes(const TtTensor* source, const TtTensor* destination, uint8_t* is_done);
// Gives a storage of bytes the element type of a tensor on it that has elements.
TtStatus tt_take_type(const TtTensor* tensor);

// Pinned memory of the host (crates/engine/src/pinned.rs). Without bytes, *data is null.
TtStatus tt_pinned_new(size_t nbytes, void** data);
void tt_pinned_release(void* data);
// Whether an address is inside pinned memory.
uint8_t tt_is_pinned(const void* data);

// ---- jobs ------------------------------------------------------------------------------------

// Work of the host on values of a device, in the order of the device's queue (crates/engine/src/host_job.rs).
struct TtJob {
  const char* name;  // for errors
  uint64_t lane;     // jobs of a lane run in the order in which they were posted
  const TtTensor* inputs;
  size_t n_inputs;
  const TtTensor* outputs;
  const int32_t* initial;  // of each output: the input whose copy its memory is at first, or -1
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
// Posts a job, and owns its context from then on, even if this fails. Later reads of the outputs get their new values.
TtStatus tt_post_job(int32_t device, const TtJob* job, uint64_t* ticket);

enum TtTicketState : int32_t {
  TT_RUNNING = 0,
  TT_DONE = 1,
  TT_FAILED = 2,
};
TtTicketState tt_ticket_state(uint64_t ticket);
// Waits until a job has ended, for at most so many milliseconds (-1: no limit). Fails with the job's error.
TtStatus tt_ticket_wait(uint64_t ticket, int64_t milliseconds);
void tt_ticket_release(uint64_t ticket);
// Whether each call waits for its results, as in Debug mode.
uint8_t tt_is_synchronous();

// The forms of collectives that are programs (crates/engine/src/collective.rs). TT_HOST is none of them.
enum TtForm : int32_t {
  TT_HOST = 0,
  TT_ALL_REDUCE = 1,
  TT_BROADCAST = 2,
  TT_ALL_GATHER = 3,
  TT_ALL_GATHER_LIST = 4,
  TT_REDUCE_SCATTER = 5,
  TT_REDUCE_SCATTER_LIST = 6,
  TT_ALL_TO_ALL = 7,
  TT_SCATTER = 8,
};

struct TtCollective {
  const char* name;       // for errors
  const char* reduction;  // PyTorch's name
  double factor;          // of "premul_sum"
  int64_t root;           // the rank in the group
  TtForm form;
  const int64_t* processes;  // of each rank of the group, in the plugin's client
  size_t n_processes;
  uint64_t lane;    // of the group
  uint64_t number;  // of the call in the group
  const TtTensor* inputs;
  size_t n_inputs;
  const TtTensor* outputs;  // none if the results are not used
  size_t n_outputs;
};

// A rank's vote on the collective number `first`, or the result for all ranks (crates/engine/src/vote.rs).
struct TtOpinion {
  uint64_t first;
  uint64_t last;
  uint64_t program;    // 0 for none
  uint64_t proposals;  // the number of ranks that have a program
};

// How the ranks of a group compare the programs that they are about to launch (crates/engine/src/agreement.rs).
struct TtAgreement {
  const char* name;  // for errors
  uint64_t lane;     // the ranks compare in the order of its jobs
  size_t rank;       // in the group
  size_t size;       // of the group
  uint64_t milliseconds;  // how long a collective may take
  void* context;
  // Called from any thread, without the GIL. Waits until all ranks have told what they launch. Returns 0 if all have told the
  // same; else it writes a message of at most `capacity` bytes and returns -1.
  int32_t (*agree)(void* context, const char* program, char* message, size_t capacity);
  // Called in the same way. Sends an opinion to a rank of the group, for its vote on the same collective.
  int32_t (*send)(void* context, size_t rank, const TtOpinion* opinion, char* message, size_t capacity);
  // Called in the same way. Waits for an opinion from a rank of the group. `opinion->first` is the collective that this rank
  // votes on.
  int32_t (*receive)(void* context, size_t rank, TtOpinion* opinion, char* message, size_t capacity);
  // Called in the same way. Writes which collective of the group has this number. If it is late, also what other ranks wait in;
  // later collectives of the group fail then.
  void (*describe)(void* context, uint64_t number, uint8_t is_late, char* text, size_t capacity);
  // Called when `context` is no longer needed, from any thread.
  void (*release)(void* context);
};

// Begins a group of these processes. `has` is whether the plugin's client has a device of each, so that collectives between
// them can be programs. Opens the plugin. Owns the context of the agreement from then on, even if this fails.
TtStatus tt_open_group(const int64_t* processes, size_t count, const TtAgreement* agreement, uint8_t* has);

// Ends the group of a lane. The programs of its collectives are dropped, unless another group has the same devices. Waits at
// most so long until the ranks have voted on all of its collectives.
TtStatus tt_close_group(const int64_t* processes, size_t count, uint64_t lane, int64_t milliseconds);
// Runs a collective as a program of the device's queue. Later reads of the outputs get their new values.
TtStatus tt_run_collective(int32_t device, const TtCollective* collective);

// ---- devices ---------------------------------------------------------------------------------

// Opens the plugin on first use. -1 after a failure (see tt_last_error).
int32_t tt_device_count();
// The number of the first device that this process can use.
int32_t tt_first_device();
// Whether a plugin can be found. Does not open it, and never fails.
uint8_t tt_is_available();
// Whether the plugin is open.
uint8_t tt_is_initialized();
// Flushes recorded calls and waits for all work queued on a device (-1: every device).
TtStatus tt_synchronize(int32_t device);
// Submits the calls that are recorded for a device, because the ranks of a group differ in what they call before and after.
TtStatus tt_part_ranks(int32_t device);

// An event that is done when the work queued so far on `device` is done. If `is_timed`, recorded calls are submitted; else this
// can wait until the event is used.
TtStatus tt_event_new(int32_t device, uint8_t is_timed, uint64_t* event);
TtStatus tt_event_query(uint64_t event, uint8_t* done);
TtStatus tt_event_wait(uint64_t event);
// Milliseconds between the times at which the two were found to be done. Waits for both.
TtStatus tt_event_elapsed(uint64_t start, uint64_t end, double* milliseconds);
void tt_event_release(uint64_t event);

struct TtMemory {
  int64_t allocated, peak_allocated;  // bytes of live storages that hold a value
  int64_t total_allocated, total_freed;
  int64_t live, peak_live;            // count of those storages
  int64_t total_live, total_released;
  int64_t out_of_memory;              // count of failures
  int64_t free, total;                // bytes of the device, from the plugin or the host
};
TtStatus tt_memory(int32_t device, TtMemory* memory);
// The bytes that the last failure on a device asked for, once; 0 if they are unknown.
int64_t tt_take_refused(int32_t device);
TtStatus tt_reset_peak_memory(int32_t device);
TtStatus tt_reset_memory_totals(int32_t device);  // total_*, and out_of_memory
TtStatus tt_empty_cache();

// ---- profiler --------------------------------------------------------------------------------

// A run of a program on a device.
struct TtDeviceRun {
  const char* name;  // of the program; UTF-8, valid during the callback
  size_t name_length;
  const char* operators;  // all of its operators; as the name
  size_t operators_length;
  int64_t begin, end;  // nanoseconds since 1970
  uint64_t caller;     // the operator that has launched it, by tt_profile_enter's number; 0 if there is none
  double flops, bytes;  // the compiler's estimates; negative if it has none
  int32_t device;
};
// Begins to record the runs of devices.
TtStatus tt_profile_begin();
// Ends the recording, waits for the devices, and passes the runs to `receive` in their order.
TtStatus tt_profile_end(void* context, void (*receive)(void* context, const TtDeviceRun* run));
// The thread enters an operator, with the profiler's number of it, or leaves the one that it entered last.
void tt_profile_enter(uint64_t number);
void tt_profile_leave();

// ---- csrc, called from Rust ------------------------------------------------------------------

// Registers allocator, guard, hooks, generator and kernels with PyTorch. Called once, at import, with
// the GIL held. `tracer` is a PyObject* (borrowed; kept): called as tracer(op_overload, args, kwargs)
// with the GIL held, it returns an int, the handle of the traced graph for tt_define, or raises. `sparse` is
// called likewise: it returns the results of an operator on sparse or nested tensors, or raises.
// Returns 0, or writes a message of at most `capacity` bytes and returns -1.
int32_t tt_initialize(void* tracer, void* sparse, char* message, size_t capacity);

// Has a Python function compute the operator "namespace::name" wherever a tensor among its arguments requires a gradient.
// `function` is a PyObject* (borrowed; kept), called as `sparse` above; null removes it. Called with the GIL held.
// Returns 0, or writes a message of at most `capacity` bytes and returns -1.
int32_t tt_set_gradient(const char* op, void* function, char* message, size_t capacity);

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

// Calls a compiled graph. Called without the GIL; takes it where it needs it. `inputs` is a Python list (borrowed). Returns
// a new reference to the list of outputs, or null with a Python exception set.
void* tt_call_graph(const TtGraph* graph, void* inputs);
// The same for tt_prepare, with a place for its result. Returns whether there is one; else a Python exception is set.
int32_t tt_prepare_graph(const TtGraph* graph, void* inputs, void* prepared);

// The scope of the calling thread, which is made if there is none, or 0 with a Python exception set. With the GIL held.
uint64_t tt_scope_of_thread();

// The core's handle of a tensor's storage, borrowed, or null with a Python exception set if the core does not own the
// memory. `tensor` is a Python object (borrowed). With the GIL held.
void* tt_storage_of(void* tensor);

// A new reference to a c10d backend that runs its collectives through `gloo`, a backend of the same ranks, or null with a
// Python exception set. When a collective fails, each rank writes into `store` in which call it has waited. Both are borrowed
// Python objects. `processes` are those of the ranks in the plugin's client; none if it has one process only. Called with the
// GIL held.
void* tt_process_group(void* gloo, void* store, int64_t timeout_milliseconds, const int64_t* processes, size_t n_processes);

// A new reference to a dict of Python functions that record and return the history of memory, or null with a Python
// exception set. With the GIL held.
void* tt_memory_history();

int32_t tt_current_device();
void tt_set_current_device(int32_t device);
// A new reference to the torch.Generator object of a device's default generator, or null with a
// Python exception set.
void* tt_default_generator(int32_t device);
}
