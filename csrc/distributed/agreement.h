// How the ranks of a group compare programs, and vote on them: by messages of Gloo.
#pragma once

#include <cstdio>
#include <memory>

#include "gloo.h"

namespace torchtpu::agreement {

// Calls `work` with the group behind a context.
template <typename F>
int32_t with_group(void* context, char* message, size_t capacity, F work) {
  const auto call = [&] {
    const auto gloo = static_cast<std::weak_ptr<Gloo>*>(context)->lock();
    TORCH_CHECK(gloo != nullptr, "the process group was destroyed");
    work(*gloo);
  };
  return guarded(call, message, capacity);
}

inline int32_t agree(void* context, const char* program, char* message, size_t capacity) {
  return with_group(context, message, capacity, [&](Gloo& gloo) { gloo.meet(program, true, [] {}); });
}

inline int32_t send(void* context, size_t rank, const TtOpinion* opinion, char* message, size_t capacity) {
  return with_group(context, message, capacity, [&](Gloo& gloo) { gloo.send(static_cast<int>(rank), *opinion); });
}

inline int32_t receive(void* context, size_t rank, TtOpinion* opinion, char* message, size_t capacity) {
  return with_group(context, message, capacity, [&](Gloo& gloo) { gloo.receive(static_cast<int>(rank), *opinion); });
}

inline void describe(void* context, uint64_t number, uint8_t is_late, char* text, size_t capacity) {
  std::string described = "a collective of a process group that was destroyed";
  with_group(context, text, capacity, [&](Gloo& gloo) { described = gloo.describe(number, is_late != 0); });
  std::snprintf(text, capacity, "%s", described.c_str());
}

inline void release(void* context) {
  delete static_cast<std::weak_ptr<Gloo>*>(context);
}

// For the core, which releases it. `name` is used in errors.
inline TtAgreement of(const std::string& name, uint64_t lane, Clock timeout, const std::shared_ptr<Gloo>& gloo) {
  const auto rank = static_cast<size_t>(gloo->backend().getRank()), size = static_cast<size_t>(gloo->backend().getSize());
  return {.name = name.c_str(),
          .lane = lane,
          .rank = rank,
          .size = size,
          .milliseconds = static_cast<uint64_t>(timeout.count()),
          .context = new std::weak_ptr<Gloo>(gloo),
          .agree = agree,
          .send = send,
          .receive = receive,
          .describe = describe,
          .release = release};
}

}  // namespace torchtpu::agreement
