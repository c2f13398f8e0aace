// The history of memory: when storages are made and released, and the lines of Python that do so.
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "shim.h"

namespace torchtpu {

std::atomic<bool> records_memory{false};

namespace {

using Stack = std::shared_ptr<torch::CapturedTraceback>;

// The name of a change in PyTorch's snapshots of memory.
const char* name_of(Change change) {
  switch (change) {
    case Change::kMade: return "alloc";
    case Change::kReleased: return "free_completed";
    case Change::kRefused: break;
  }
  return "oom";
}

struct Event {
  Change change;
  const void* address;
  size_t nbytes;
  int32_t device;
  int64_t microseconds;  // since 1970
  Stack stack;
};

class History {
 public:
  // Records live storages, and up to `most` events. Calls that make storages, or release them, keep their stack if the first
  // arguments say so. The events of before stay unless `clear` is true.
  void begin(bool keeps_made, bool keeps_released, size_t most, bool clear) {
    const std::lock_guard lock(mutex_);
    if (clear) forget();
    keeps_made_ = keeps_made;
    keeps_released_ = keeps_released;
    most_ = most;
    shorten();
    records_memory = true;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    records_memory = false;
    forget();
  }

  void note(Change change, const void* address, size_t nbytes, int32_t device) {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    Event event{change, address, nbytes, device, std::chrono::duration_cast<std::chrono::microseconds>(since).count(), {}};
    // The stack takes the GIL, so it comes before the lock.
    const bool keeps_stack = change == Change::kReleased ? keeps_released_ : keeps_made_;
    if (keeps_stack) event.stack = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
    const std::lock_guard lock(mutex_);
    if (!records_memory) return;
    if (change == Change::kMade) live_[address] = event.stack;
    if (change == Change::kReleased) live_.erase(address);
    events_.push_back(std::move(event));
    shorten();
  }

  // The events: device, name, address, bytes, time and frames of each. Then the frames of the calls that made the live
  // storages, by their addresses. With the GIL held.
  py::tuple snapshot() {
    std::deque<Event> events;
    std::unordered_map<const void*, Stack> live;
    {
      const std::lock_guard lock(mutex_);
      events = events_;
      live = live_;
    }
    std::vector<torch::CapturedTraceback*> stacks;
    for (const Event& event : events) add(stacks, event.stack);
    for (const auto& [address, stack] : live) add(stacks, stack);
    const torch::SymbolizedTracebacks symbolized = torch::symbolize(stacks);
    std::vector<py::dict> frames;
    for (const auto& frame : symbolized.all_frames) {
      py::dict entry;
      entry["name"] = frame.funcname;
      entry["filename"] = frame.filename;
      entry["line"] = frame.lineno;
      frames.push_back(std::move(entry));
    }
    size_t next = 0;
    const auto frames_of = [&](const Stack& stack) {
      py::list found;
      if (stack) {
        for (const uint64_t frame : symbolized.tracebacks[next++]) found.append(frames[frame]);
      }
      return found;
    };
    py::list described;
    for (const Event& event : events) {
      described.append(py::make_tuple(event.device, name_of(event.change), reinterpret_cast<uintptr_t>(event.address),
                                      event.nbytes, event.microseconds, frames_of(event.stack)));
    }
    py::dict made;
    for (const auto& [address, stack] : live) made[py::int_(reinterpret_cast<uintptr_t>(address))] = frames_of(stack);
    return py::make_tuple(std::move(described), std::move(made));
  }

 private:
  static void add(std::vector<torch::CapturedTraceback*>& stacks, const Stack& stack) {
    if (stack) stacks.push_back(stack.get());
  }

  void shorten() {
    while (events_.size() > most_) events_.pop_front();
  }

  void forget() {
    events_.clear();
    live_.clear();
  }

  std::mutex mutex_;
  std::atomic<bool> keeps_made_{false};
  std::atomic<bool> keeps_released_{false};
  size_t most_ = 0;
  std::deque<Event> events_;
  std::unordered_map<const void*, Stack> live_;
};

History& history() {
  static auto* instance = new History();
  return *instance;
}

}  // namespace

void note_memory(Change change, const void* address, size_t nbytes, int32_t device) {
  history().note(change, address, nbytes, device);
}

void note_out_of_memory() {
  const int32_t device = current_device();
  const auto refused = static_cast<size_t>(tt_take_refused(device));
  TtMemory memory{};
  if (!records_memory || tt_memory(device, &memory) != TT_OK) return;
  // The viewer reads the free bytes of the device in place of an address.
  const void* free = reinterpret_cast<const void*>(memory.free);
  history().note(Change::kRefused, free, refused, device);
}

}  // namespace torchtpu

void* tt_memory_history() {
  using namespace torchtpu;
  try {
    py::dict functions;
    functions["begin"] = py::cpp_function([](bool keeps_made, bool keeps_released, size_t most, bool clear) {
      history().begin(keeps_made, keeps_released, most, clear);
    });
    functions["end"] = py::cpp_function([] { history().end(); });
    functions["snapshot"] = py::cpp_function([] { return history().snapshot(); });
    return functions.release().ptr();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}
