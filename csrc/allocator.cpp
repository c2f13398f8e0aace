// Memory: a storage's DataPtr has the core's handle as its context, and an unreadable address as its data pointer.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

#include "shim.h"

namespace torchtpu {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

// Tells torch.profiler of a storage, if it asks for memory: profile(profile_memory=True). Tells the history of memory, too.
void report_memory(const void* storage, Change change) {
  const bool is_profiled = c10::memoryProfilingEnabled();
  if ((!is_profiled && !records_memory.load(std::memory_order_relaxed)) || storage == nullptr) [[likely]] return;
  size_t nbytes = 0;
  int32_t device = 0;
  void* data = nullptr;
  tt_storage_described(storage, &nbytes, &device, &data);
  if (nbytes == 0) return;
  if (records_memory) note_memory(change, data, nbytes, device);
  TtMemory memory{};
  if (!is_profiled || tt_memory(device, &memory) != TT_OK) return;
  const auto allocated = static_cast<size_t>(memory.allocated);
  c10::reportMemoryUsageToProfiler(
      data, static_cast<int64_t>(nbytes) * static_cast<int>(change), allocated, allocated, device_at(device));
}

struct TpuAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    const int32_t device = current_device();
    void* storage = nullptr;
    void* data = nullptr;
    check(tt_storage_new(device, nbytes, &storage, &data));
    report_memory(storage, Change::kMade);
    return {data, storage, &release_storage, device_at(device)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // the address is not the handle

  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "torchtpu: device memory has no address to copy from");
  }

  bool initialized() override { return tt_is_initialized() != 0; }
  void emptyCache(c10::MempoolId_t) override {
    NoGil no_gil;
    check(tt_empty_cache());
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // one in-order queue: nothing to wait for

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    TtMemory memory;
    check(tt_memory(device, &memory));
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    DeviceStats stats;
    // Nothing is cached or split: allocated, active and reserved bytes are the same.
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes, &stats.requested_bytes}) {
      auto& stat = (*bytes)[kAll];
      stat.current = memory.allocated;
      stat.peak = memory.peak_allocated;
      stat.allocated = memory.total_allocated;
      stat.freed = memory.total_freed;
    }
    for (auto* count : {&stats.allocation, &stats.active, &stats.segment}) {
      auto& stat = (*count)[kAll];
      stat.current = memory.live;
      stat.peak = memory.peak_live;
      stat.allocated = memory.total_live;
      stat.freed = memory.total_released;
    }
    stats.num_ooms = memory.out_of_memory;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override { check(tt_reset_memory_totals(device)); }
  void resetPeakStats(c10::DeviceIndex device) override { check(tt_reset_peak_memory(device)); }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    TtMemory memory;
    check(tt_memory(device, &memory));
    return {static_cast<size_t>(memory.free), static_cast<size_t>(memory.total)};
  }
};

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void* data = nullptr;
    check(tt_pinned_new(nbytes, &data));
    return {data, data, &tt_pinned_release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &tt_pinned_release; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

}  // namespace

// Leaked, like all singletons here: storages outlive static destructors at exit.
c10::Allocator* allocator() {
  static auto* instance = new TpuAllocator();
  return instance;
}

c10::Allocator* pinned_allocator() {
  static auto* instance = new PinnedAllocator();
  return instance;
}

void release_storage(void* storage) {
  report_memory(storage, Change::kReleased);
  tt_storage_release(storage);
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  c10::DataPtr old = impl->set_data_ptr(c10::DataPtr());
  TORCH_CHECK(old.get_deleter() == &release_storage, "torchtpu: cannot resize a storage that this backend does not own");
  const c10::Device device = old.device();
  void* data = old.get();
  report_memory(old.get_context(), Change::kReleased);
  const TtStatus status = tt_storage_resize(old.get_context(), nbytes, &data);
  report_memory(old.get_context(), Change::kMade);
  impl->set_data_ptr_noswap({data, old.release_context(), &release_storage, device});
  check(status);
  impl->set_nbytes(nbytes);
}

at::Tensor adopt(const TtOut& out, int32_t device) {
  if (out.storage == nullptr) return {};
  report_memory(out.storage, Change::kMade);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), out.nbytes,
      c10::DataPtr(out.data, out.storage, &release_storage, device_at(device)), allocator(), /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(out.dtype)));
  const auto ndim = static_cast<size_t>(out.ndim);
  if (ndim != 1 || out.sizes[0] != 0) {  // a new TensorImpl has sizes [0]
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
        c10::IntArrayRef(out.sizes, ndim), c10::IntArrayRef(out.strides, ndim), out.offset);
  }
  return tensor;
}

void register_allocator() { c10::SetAllocator(kDevice, allocator()); }

}  // namespace torchtpu
