// Names of PyTorch's newest version, defined here for the versions that lack them.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/version.h>

#include <cstdint>
#include <functional>
#include <optional>

#define TORCHTPU_IS_TORCH(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// Whether a group takes the functions of PyTorch's flight recorder.
#define TORCHTPU_HAS_FLIGHT_HOOKS TORCHTPU_IS_TORCH(15)

namespace torchtpu {

#if TORCHTPU_HAS_FLIGHT_HOOKS
using c10d::AbortHook;
using c10d::CompletionHook;
#else
struct CompletionHookArgs {
  uint64_t completionKey = 0;
  std::optional<float> duration_ms;  // milliseconds
};
using CompletionHook = std::function<void(const CompletionHookArgs&)>;
using AbortHook = std::function<void()>;
#endif

// Older versions name the calls for several tensors as those for one.
#if TORCHTPU_IS_TORCH(14)
constexpr auto kAllGatherCoalesced = c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED;
constexpr auto kReduceScatterCoalesced = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
constexpr auto kAllGatherCoalesced = c10d::OpType::_ALLGATHER_BASE;
constexpr auto kReduceScatterCoalesced = c10d::OpType::_REDUCE_SCATTER_BASE;
#endif

}  // namespace torchtpu
