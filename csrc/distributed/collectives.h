// Collectives as jobs of the core (collectives.cpp).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shim.h"
#include "versions.h"

namespace torchtpu {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using Pointer = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::milliseconds;

// The work of a job. Its tensors are passed as CPU tensors.
using Body = std::function<void(Tensors& inputs, Tensors& outputs)>;

// A lane of the core. It is closed when its last user is gone.
struct Lane {
  uint64_t id = tt_open_lane();
  Lane() = default;
  ~Lane() { tt_close_lane(id); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
};

// The state of a call, which the thread of its job sets. `key` is the number of the call in this process.
struct Progress {
  explicit Progress(uint64_t number) : key(number) {}
  const uint64_t key;
  float milliseconds = 0;  // set before `has_succeeded`
  std::atomic<bool> has_succeeded{false};
};

// Functions that are registered by a number.
template <typename Hook>
class HookTable {
 public:
  void set(int64_t id, Hook hook) {
    std::lock_guard lock(mutex_);
    hooks_[id] = std::move(hook);
  }
  void remove(int64_t id) {
    std::lock_guard lock(mutex_);
    hooks_.erase(id);
  }
  // A copy, so that hooks are called without the lock.
  std::map<int64_t, Hook> all() const {
    std::lock_guard lock(mutex_);
    return hooks_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, Hook> hooks_;
};

// The functions that PyTorch's flight recorder registers on a group. They are called on a thread of the core.
struct Hooks {
  HookTable<CompletionHook> completion;
  HookTable<AbortHook> abort;

  // Runs the work of a call. Reports how long it took, or that it failed.
  void observe(Progress& progress, const std::function<void()>& work) const;
};

// The form that all collectives are reduced to.
struct Call {
  OpType type;
  Tensors inputs{}, outputs{};
  Body body{};
  std::string agreed{};            // must be the same on all ranks, in addition to the type and the number
  bool agrees = true;              // whether the ranks compare all this before the call
  std::vector<int32_t> initial{};  // for each output the input with its initial value, or -1
  Tensors results{};               // the results that the caller sees; empty if they are the outputs
  bool computes = false;           // computes with the elements; otherwise it moves bytes
  std::shared_ptr<Lane> lane{};    // the group's lane if null
  bool host_waits = false;
  std::shared_ptr<int> source{};  // of a message from any rank
  std::shared_ptr<Progress> progress{};
  TtForm form = TT_HOST;  // as a program; TT_HOST if it is always a job
  c10d::ReduceOp reduction{};
  int64_t root = 0;
};

inline int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.itemsize());
}

// Runs a call as a program. `processes` are those of the ranks.
Pointer run_program(Call call, const std::vector<int64_t>& processes, int rank, uint64_t sequence);

// "sum"; the name that the core knows.
const char* name_of(const c10d::ReduceOp& op);

// The factor of ReduceOp.PREMUL_SUM.
double factor_of(const c10d::ReduceOp& op);

// Posts a job. `name` is used in errors; `sequence` is the sequence number that the work returns.
Pointer post_job(Call call, const std::string& name, int rank, uint64_t sequence);

}  // namespace torchtpu
