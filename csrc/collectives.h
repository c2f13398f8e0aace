// Collectives as jobs of the core (collectives.cpp).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <memory>
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
};

inline int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.itemsize());
}

// Posts a job. `name` is used in errors; `sequence` is the sequence number that the work returns.
Pointer post_job(Call call, const std::string& name, int rank, uint64_t sequence);

}  // namespace torchtpu
