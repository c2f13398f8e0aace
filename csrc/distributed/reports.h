// What the ranks of a group tell each other through the store when a collective has failed: who waited in which call.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <mutex>
#include <string>
#include <vector>

namespace torchtpu {

// How many ranks a message names one by one.
constexpr int64_t kMostNamed = 16;

// Each rank writes its report once. The first rank that asks for the others' reads them all and writes a summary of a
// bounded length, which the others read. So the number of requests to the store is linear in the number of ranks.
class Reports {
 public:
  Reports(c10::intrusive_ptr<c10d::Store> store, int rank, int size) : store_(std::move(store)), rank_(rank), size_(size) {}

  // Tells the other ranks in which call this one has waited.
  void tell(const std::string& call) noexcept;
  // Tells it, gives the others a moment to tell theirs, and returns in words what is known of them.
  std::string exchange(const std::string& call) noexcept;

 private:
  static std::string key(int rank) { return "failed/" + std::to_string(rank); }
  void write(const std::string& call);
  // Lines "missing <rank>" and "<rank> <call>", of at most `kMostNamed` ranks each.
  std::string summarize();
  // The summary of the first rank that asked; empty if that rank has ended.
  std::string summary_of_first();
  std::string in_words(const std::string& call, const std::string& summary) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::mutex mutex_;
  bool has_told_ = false;
};

}  // namespace torchtpu
