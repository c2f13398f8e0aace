// Checks of what a collective is called with, with PyTorch's words.
#pragma once

#include <algorithm>
#include <numeric>

#include "collectives.h"

namespace torchtpu {

// "6 Float, 4 Float"
inline std::string spell(const Tensors& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    text += c10::str(text.empty() ? "" : ", ", tensor.numel(), " ", tensor.scalar_type());
  }
  return text;
}

template <typename T>
const T& only(const std::vector<T>& list, const char* name) {
  TORCH_CHECK_VALUE(list.size() == 1, "ProcessGroup::", name, ": requires a single tensor list of one element");
  return list[0];
}

inline void check_root(int64_t root, int size) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "invalid root rank: ", root);
}

inline void check_peer(int peer, int size) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < size, "invalid rank: ", peer);
}

inline void check_count(const Tensors& list, int size, const char* name) {
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size), "ProcessGroup::", name, ": expected a list of ", size,
                    " tensors, one for each rank, not of ", list.size());
}

inline bool are_alike(const Tensors& list, const at::Tensor& one) {
  return std::all_of(list.begin(), list.end(), [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == one.scalar_type() && tensor.numel() == one.numel();
  });
}

inline void check_alike(const Tensors& list, const at::Tensor& one, const char* name) {
  TORCH_CHECK_VALUE(are_alike(list, one), "ProcessGroup::", name, ": tensors must have the same size and dtype on all ranks");
}

// The part of this rank in a list of the parts of all ranks, which may have different sizes.
inline void check_own(const Tensors& list, int rank, const at::Tensor& own, const char* name) {
  const at::Tensor& listed = list[static_cast<size_t>(rank)];
  TORCH_CHECK_VALUE(listed.numel() == own.numel(), "ProcessGroup::", name, ": this rank's tensor has ", own.numel(),
                    " elements, and its part of the list has ", listed.numel());
  const auto has_dtype = [&](const at::Tensor& tensor) { return tensor.scalar_type() == own.scalar_type(); };
  TORCH_CHECK_TYPE(std::all_of(list.begin(), list.end(), has_dtype), "ProcessGroup::", name, ": all tensors must have the same dtype");
}

// Each of the `large` holds one of the `small` for each rank.
inline void check_pairs(const Tensors& large, const Tensors& small, int size, const char* message) {
  TORCH_CHECK_VALUE(large.size() == small.size(), "as many inputs as outputs are needed");
  for (size_t i = 0; i < large.size(); ++i) {
    TORCH_CHECK_TYPE(large[i].scalar_type() == small[i].scalar_type(), "output tensor must have the same type as input tensor");
    TORCH_CHECK_VALUE(large[i].numel() == small[i].numel() * size, message);
  }
}

// The sizes of the parts for each rank, in bytes.
inline std::vector<int64_t> split_bytes(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const int64_t row = rows == 0 ? 0 : bytes_of(tensor) / rows;
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "Tensor's dim 0 does not divide equally across group size");
    return std::vector<int64_t>(static_cast<size_t>(size), rows / size * row);
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "Number of tensor splits not equal to group size");
  TORCH_CHECK_VALUE(std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
                    "Split sizes doesn't match total dim 0 size");
  std::vector<int64_t> bytes;
  for (const int64_t split : splits) bytes.push_back(split * row);
  return bytes;
}

}  // namespace torchtpu
