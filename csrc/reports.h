// What the ranks of a group tell each other through the store when a collective has failed: who waited in which call.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <vector>

namespace torchtpu {

// How many ranks a message names one by one.
constexpr int64_t kMostNamed = 16;

class Reports {
 public:
  Reports(c10::intrusive_ptr<c10d::Store> store, int rank, int size) : store_(std::move(store)), rank_(rank), size_(size) {}

  // Tells the other ranks in which call this one has waited.
  void tell(const std::string& call) noexcept;
  // Tells it, gives the others a moment to tell theirs, and returns in words what is known of them.
  std::string exchange(const std::string& call) noexcept;

 private:
  std::string key(int rank) const { return "failed/" + std::to_string(rank); }
  std::string in_words(const std::string& call, const std::vector<std::string>& calls) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
};

}  // namespace torchtpu
