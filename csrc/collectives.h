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

// What a job does, with its tensors as tensors of the CPU.
using Body = std::function<void(Tensors& inputs, Tensors& outputs)>;

// A lane of the core, closed with its last user.
struct Lane {
  uint64_t id = tt_open_lane();
  Lane() = default;
  ~Lane() { tt_close_lane(id); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
};

// What a collective comes down to.
struct Call {
  OpType type;
  Tensors inputs{}, outputs{};
  Body body;
  std::string agreed{};            // what must be the same on all ranks, beside the type and the number
  bool agrees = true;              // whether that is looked at before
  std::vector<int32_t> initial{};  // for each output the input whose value it begins with, or -1
  Tensors results{};               // what the caller is told of where there are no outputs
  bool computes = false;           // with the elements; otherwise bytes are moved
  std::shared_ptr<Lane> lane{};    // the group's own where none is named
  bool host_waits = false;
  std::shared_ptr<int> source{};  // of a message from any rank
};

inline int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.itemsize());
}

// Posts a job. `name` is for errors; `sequence` is what the work says when it is asked for its number.
Pointer post_job(Call call, const std::string& name, int rank, uint64_t sequence);

}  // namespace torchtpu
