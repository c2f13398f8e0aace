#include "reports.h"

#include <c10/util/StringUtil.h>

#include <chrono>
#include <thread>

namespace torchtpu {
namespace {

// All ranks that have called it fail at about the same time: the first to fail closes its connections.
constexpr std::chrono::milliseconds kPatience{1000}, kPause{20};

}  // namespace

void Reports::tell(const std::string& call) noexcept {
  try {
    store_->set(key(rank_), std::vector<uint8_t>(call.begin(), call.end()));
  } catch (const std::exception&) {  // the rank that had the store is gone
  }
}

std::string Reports::exchange(const std::string& call) noexcept {
  std::vector<std::string> calls(static_cast<size_t>(size_));
  tell(call);
  try {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (bool all = false; !all && std::chrono::steady_clock::now() < end;) {
      all = true;
      for (int rank = 0; rank < size_; ++rank) {
        auto& theirs = calls[static_cast<size_t>(rank)];
        if (rank == rank_ || !theirs.empty()) continue;
        if (store_->check({key(rank)})) {
          const auto bytes = store_->get(key(rank));
          theirs.assign(bytes.begin(), bytes.end());
        } else {
          all = false;
        }
      }
      if (!all) std::this_thread::sleep_for(kPause);
    }
  } catch (const std::exception&) {
    return "the store does not answer: the rank that has it may have ended";
  }
  return in_words(call, calls);
}

std::string Reports::in_words(const std::string& call, const std::vector<std::string>& calls) const {
  std::string missing, waiting;
  int64_t named = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& theirs = calls[static_cast<size_t>(rank)];
    if (rank == rank_ || named == kMostNamed) continue;
    ++named;
    if (theirs.empty()) {
      missing += c10::str(missing.empty() ? "missing: rank " : ", rank ", rank);
    } else {
      waiting += c10::str(waiting.empty() ? "rank " : ", rank ", rank, " waited in ", theirs == call ? "the same" : theirs);
    }
  }
  const char* between = missing.empty() || waiting.empty() ? "" : "; ";
  return c10::str(missing, between, waiting, size_ - 1 > kMostNamed ? ", and others" : "");
}

}  // namespace torchtpu
