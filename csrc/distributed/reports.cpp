#include "reports.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

namespace torchtpu {
namespace {

using Steady = std::chrono::steady_clock;

// All ranks that have called it fail at about the same time: the first to fail closes its connections.
constexpr std::chrono::milliseconds kPatience{1000}, kPause{20};
constexpr const char* kTold = "failed/count";
constexpr const char* kAsked = "failed/asked";
constexpr const char* kSummary = "failed/summary";
constexpr const char* kMissing = "missing";
constexpr const char* kOthers = "others";

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

void Reports::write(const std::string& call) {
  std::lock_guard lock(mutex_);
  store_->set(key(rank_), bytes_of(call));
  if (!has_told_) store_->add(kTold, 1);
  has_told_ = true;
}

void Reports::tell(const std::string& call) noexcept {
  try {
    write(call);
  } catch (const std::exception&) {  // the rank that had the store is gone
  }
}

std::string Reports::exchange(const std::string& call) noexcept {
  try {
    write(call);
    const bool is_first = store_->add(kAsked, 1) == 1;
    if (is_first) store_->set(kSummary, bytes_of(summarize()));
    return in_words(call, summary_of_first());
  } catch (const std::exception&) {
    return "the store does not answer: the rank that has it may have ended";
  }
}

std::string Reports::summarize() {
  const auto end = Steady::now() + kPatience;
  while (store_->add(kTold, 0) < size_ && Steady::now() < end) std::this_thread::sleep_for(kPause);
  std::string missing, waiting;
  int64_t n_missing = 0, n_waiting = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (!store_->check({key(rank)})) {
      if (n_missing++ < kMostNamed) missing += c10::str(kMissing, " ", rank, "\n");
    } else if (n_waiting++ < kMostNamed) {
      const auto bytes = store_->get(key(rank));
      waiting += c10::str(rank, " ", std::string(bytes.begin(), bytes.end()), "\n");
    }
  }
  return c10::str(missing, waiting, std::max(n_missing, n_waiting) > kMostNamed ? kOthers : "");
}

std::string Reports::summary_of_first() {
  const auto end = Steady::now() + 2 * kPatience;
  while (!store_->check({kSummary})) {
    if (Steady::now() > end) return "";  // the first rank has ended
    std::this_thread::sleep_for(kPause);
  }
  const auto bytes = store_->get(kSummary);
  return {bytes.begin(), bytes.end()};
}

std::string Reports::in_words(const std::string& call, const std::string& summary) const {
  std::string missing, waiting;
  std::istringstream lines(summary);
  const std::string own = std::to_string(rank_);
  bool others = false;
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    const std::string first = line.substr(0, space);
    if (first == kOthers) {
      others = true;
      continue;
    }
    const std::string rest = line.substr(space + 1);
    if (first == own || (first == kMissing && rest == own)) continue;
    if (first == kMissing) {
      missing += c10::str(missing.empty() ? "missing: rank " : ", rank ", rest);
    } else {
      waiting += c10::str(waiting.empty() ? "rank " : ", rank ", first, " waited in ", rest == call ? "the same" : rest);
    }
  }
  if (missing.empty() && waiting.empty()) return "no other rank has told where it waited";
  const char* between = missing.empty() || waiting.empty() ? "" : "; ";
  return c10::str(missing, between, waiting, others ? ", and others" : "");
}

}  // namespace torchtpu
