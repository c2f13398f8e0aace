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

// What the thread of a job tells about a call. The key is the call's number in this process.
struct Progress {
  explicit Progress(uint64_t number) : key(number) {}
  const uint64_t key;
  std::atomic<bool> has_succeeded{false};
};

// The functions that PyTorch's flight recorder registers on a group. A job calls them on a thread of the core, without
// the lock of the table.
class Hooks {
 public:
  void on_completion(int64_t id, c10d::CompletionHook hook) { set(completion_, id, std::move(hook)); }
  void on_abort(int64_t id, c10d::AbortHook hook) { set(abort_, id, std::move(hook)); }
  void remove_completion(int64_t id) { remove(completion_, id); }
  void remove_abort(int64_t id) { remove(abort_, id); }

  // Runs the work of a call. Reports how long it took, or that it failed.
  void observe(Progress& progress, const std::function<void()>& work) const;

 private:
  template <typename Hook>
  using Table = std::map<int64_t, Hook>;

  template <typename Hook>
  void set(Table<Hook>& table, int64_t id, Hook hook) {
    std::lock_guard lock(mutex_);
    table[id] = std::move(hook);
  }
  template <typename Hook>
  void remove(Table<Hook>& table, int64_t id) {
    std::lock_guard lock(mutex_);
    table.erase(id);
  }
  template <typename Hook>
  Table<Hook> copy(const Table<Hook>& table) const {
    std::lock_guard lock(mutex_);
    return table;
  }

  mutable std::mutex mutex_;
  Table<c10d::CompletionHook> completion_;
  Table<c10d::AbortHook> abort_;
};

// The form that all collectives are reduced to.
struct Call {
  OpType type;
  Tensors inputs{}, outputs{};
  Body body;
  std::string agreed{};            // must be the same on all ranks, in addition to the type and the number
  bool agrees = true;              // whether the ranks compare all this before the call
  std::vector<int32_t> initial{};  // for each output the input with its initial value, or -1
  Tensors results{};               // the results that the caller sees if there are no outputs
  bool computes = false;           // computes with the elements; otherwise it moves bytes
  std::shared_ptr<Lane> lane{};    // the group's lane if null
  bool host_waits = false;
  std::shared_ptr<int> source{};  // of a message from any rank
  std::shared_ptr<Progress> progress{};
};

inline int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.itemsize());
}

// Posts a job. `name` is used in errors; `sequence` is the sequence number that the work returns.
Pointer post_job(Call call, const std::string& name, int rank, uint64_t sequence);

}  // namespace torchtpu
