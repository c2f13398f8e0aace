// Collectives as jobs of the core: the host works on the memory of the device's tensors, in parallel with programs.
#include "collectives.h"

namespace torchtpu {
namespace {

struct Shape {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
};

struct Job {
  std::vector<Shape> inputs, outputs;
  Body body;
};

Tensors wrap(const std::vector<Shape>& shapes, void* const* memory) {
  Tensors tensors;
  for (size_t i = 0; i < shapes.size(); ++i) {
    tensors.push_back(at::from_blob(memory[i], shapes[i].sizes, at::TensorOptions(shapes[i].dtype)));
  }
  return tensors;
}

int32_t run_job(void* context, void* const* inputs, void* const* outputs, char* message, size_t capacity) {
  const auto run = [&] {
    auto& job = *static_cast<Job*>(context);
    Tensors read = wrap(job.inputs, inputs), written = wrap(job.outputs, outputs);
    job.body(read, written);
  };
  return guarded(run, message, capacity);
}

void release_job(void* context) {
  delete static_cast<Job*>(context);
}

// A posted job, or a program, which has no ticket: a read of its results waits for it. `wait` orders later work after the job
// and returns at once, except for jobs that the host waits for.
class TpuWork final : public c10d::Work {
 public:
  TpuWork(int rank, const Call& call, uint64_t ticket, uint64_t sequence, Tensors results)
      : Work(rank, call.type), ticket_(ticket), sequence_(sequence), progress_(call.progress), results_(std::move(results)),
        host_waits_(call.host_waits), source_(call.source) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future_->markCompleted(c10::IValue(results_));
  }
  ~TpuWork() override {
    if (ticket_ != 0) tt_ticket_release(ticket_);
  }

  // True before the hooks of completion are called, as c10d/hooks/FlightRecorderHook.hpp wants it.
  bool isCompleted() override { return progress_->has_succeeded || ended() != TT_RUNNING; }
  bool isSuccess() const override { return progress_->has_succeeded || ended() == TT_DONE; }
  std::exception_ptr exception() const override {
    try {
      if (ended() == TT_FAILED) wait_for(kNoTimeout);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(Clock timeout) override {
    if (tt_wants_scope()) note_scope();
    if (host_waits_ || timeout != kNoTimeout || tt_is_synchronous() || ended() == TT_FAILED) wait_for(timeout);
    return true;
  }
  int sourceRank() const override { return source_ ? *source_ : -1; }
  Tensors result() override { return results_; }
  // The flight recorder asks for it when the job has ended before the recorder knows the work.
  float getDuration() const override {
    if (ticket_ == 0) return Work::getDuration();
    TORCH_CHECK(progress_->has_succeeded, "process group tpu: the duration of a collective is known when it has succeeded");
    return progress_->milliseconds;
  }
  uint64_t getSequencenumber() const override { return sequence_; }
#if TORCHTPU_HAS_FLIGHT_HOOKS
  uint64_t getCompletionKey() const override { return progress_->key; }
#endif
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  TtTicketState ended() const { return ticket_ == 0 ? TT_DONE : tt_ticket_state(ticket_); }
  void wait_for(Clock timeout) const {
    if (ticket_ == 0) return;
    NoGil no_gil;
    check(tt_ticket_wait(ticket_, timeout == kNoTimeout ? -1 : timeout.count()));
  }

  uint64_t ticket_;
  uint64_t sequence_;
  std::shared_ptr<Progress> progress_;
  Tensors results_;
  bool host_waits_;
  std::shared_ptr<int> source_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// The shape as bytes, so that data of any dtype can be moved.
Shape as_bytes(const at::Tensor& tensor) {
  return {{bytes_of(tensor)}, at::kByte};
}

Shape as_it_is(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.scalar_type()};
}

// Tensors for the core. `device` is theirs, or -1 before the first.
std::vector<TtTensor> describe_all(const Tensors& tensors, int32_t& device) {
  std::vector<TtTensor> described;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.device().type() == kDevice && tensor.layout() == c10::kStrided,
                "process group tpu: expected dense tpu tensors, not one of ", tensor.device());
    if (device < 0) device = tensor.device().index();
    TORCH_CHECK(tensor.device().index() == device, "process group tpu: tensors of one collective on ", device_at(device),
                " and ", tensor.device());
    described.push_back(describe(*tensor.unsafeGetTensorImpl()));
  }
  return described;
}

}  // namespace

void Hooks::observe(Progress& progress, const std::function<void()>& work) const {
  const auto start = std::chrono::steady_clock::now();
  try {
    work();
  } catch (...) {
    for (const auto& [id, hook] : abort.all()) hook();
    throw;
  }
  const std::chrono::duration<float, std::milli> duration = std::chrono::steady_clock::now() - start;
  progress.milliseconds = duration.count();
  progress.has_succeeded = true;
  for (const auto& [id, hook] : completion.all()) hook({.completionKey = progress.key, .duration_ms = duration.count()});
}

const char* name_of(const c10d::ReduceOp& op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum", "unused"};
  return kNames[std::min<size_t>(op.op_, std::size(kNames) - 1)];
}

double factor_of(const c10d::ReduceOp& op) {
  const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "ReduceOp.PREMUL_SUM needs a factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble() : supplement->double_factor;
}

Pointer run_program(Call call, const std::vector<int64_t>& processes, int rank, uint64_t sequence) {
  int32_t device = -1;
  const auto read = describe_all(call.inputs, device), written = describe_all(call.outputs, device);
  const double factor = call.reduction.op_ == c10d::ReduceOp::PREMUL_SUM ? factor_of(call.reduction) : 0.0;
  const std::string name = c10d::opTypeToString(call.type);
  const TtCollective collective{name.c_str(),     name_of(call.reduction), factor,      call.root,      call.form,
                                processes.data(), processes.size(),        call.lane->id, sequence, read.data(), read.size(),
                                written.data(), written.size()};
  {
    if (tt_wants_scope()) note_scope();
    NoGil no_gil;
    if (tt_wants_line()) tt_note_line();
    check(tt_run_collective(device, &collective));
  }
  Tensors results = call.results.empty() ? std::move(call.outputs) : std::move(call.results);
  return c10::make_intrusive<TpuWork>(rank, call, 0, sequence, std::move(results));
}

Pointer post_job(Call call, const std::string& name, int rank, uint64_t sequence) {
  auto job = std::make_unique<Job>();
  int32_t device = -1;
  const auto add_shapes = [&](const Tensors& tensors, std::vector<Shape>& shapes) {
    for (const at::Tensor& tensor : tensors) shapes.push_back(call.computes ? as_it_is(tensor) : as_bytes(tensor));
  };
  const auto read = describe_all(call.inputs, device), written = describe_all(call.outputs, device);
  add_shapes(call.inputs, job->inputs);
  add_shapes(call.outputs, job->outputs);
  call.initial.resize(written.size(), -1);
  const uint64_t lane = call.lane->id;
  // The job keeps its lane open.
  job->body = [lane = std::move(call.lane), body = std::move(call.body)](Tensors& in, Tensors& out) { body(in, out); };
  TtJob posted{name.c_str(), lane,    read.data(),   read.size(), written.data(), call.initial.data(), written.size(),
               job.release(), run_job, release_job};
  uint64_t ticket = 0;
  {
    NoGil no_gil;
    if (tt_wants_line()) tt_note_line();
    check(tt_post_job(device < 0 ? current_device() : device, &posted, &ticket));
  }
  Tensors results = call.results.empty() ? std::move(call.outputs) : std::move(call.results);
  return c10::make_intrusive<TpuWork>(rank, call, ticket, sequence, std::move(results));
}

}  // namespace torchtpu
