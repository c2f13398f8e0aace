// Devices, streams and events. A device has one in-order queue, so a stream is only a label: work on any stream runs
// after all work queued before it.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#if __has_include(<c10/core/DeviceCapability.h>)  // older versions of PyTorch do not use it
#include <c10/core/DeviceCapability.h>
#define TORCHTPU_HAS_CAPABILITIES
#endif

#include <array>
#include <atomic>

#include "shim.h"

namespace torchtpu {
namespace {

constexpr int64_t kPoolStreams = 32;
constexpr size_t kMaxDevices = 128;  // DeviceIndex is an int8_t

thread_local int32_t t_device = -1;  // not set
thread_local std::array<c10::StreamId, kMaxDevices> t_streams{};  // 0 is the default stream

void check_index(int32_t index) {
  if (index == t_device || (index == 0 && t_device < 0)) return;  // the common case does not call the plugin
  const int32_t count = tt_device_count();
  if (count < 0) throw_last_error();
  TORCH_CHECK(index >= 0 && index < count, "Invalid device index ", index, ": there ", count == 1 ? "is " : "are ", count,
              " ", c10::get_privateuse1_backend(), count == 1 ? " device" : " devices");
}

// PyTorch stores an event as a pointer, null before it is recorded: the core's number plus one.
void* pack(uint64_t event) { return reinterpret_cast<void*>(event + 1); }
uint64_t unpack(void* event) { return reinterpret_cast<uint64_t>(event) - 1; }

struct TpuGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }

  c10::Device getDevice() const override { return device_at(current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.index() < 0) return;
    check_index(device.index());
    t_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) t_device = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    const int32_t count = tt_device_count();
    return count < 0 ? 0 : static_cast<c10::DeviceIndex>(count);
  }

#ifdef TORCHTPU_HAS_CAPABILITIES
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
#define HOLDS(_, name) \
  capability.capability_data.supported_scalar_types.has_##name = tt_check_dtype(static_cast<int8_t>(c10::ScalarType::name)) == TT_OK;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(HOLDS)
#undef HOLDS
    // These are stored, and have no conversions.
    capability.capability_data.supported_scalar_types.has_Float4_e2m1fn_x2 = false;
    return capability;
  }
#endif
  c10::Stream getStream(c10::Device device) const override { return stream(device, t_streams[index_of(device)]); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<int64_t> next{0};
    return stream(device, 1 + next++ % kPoolStreams);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<int64_t> next{kPoolStreams + 1};
    return stream(device, next++);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    auto& current = t_streams[index_of(next.device())];
    const c10::Stream previous = stream(next.device(), current);
    current = next.id();
    return previous;
  }

  bool queryStream(const c10::Stream& stream) const override {
    uint64_t event = 0;
    check(tt_event_new(stream.device_index(), 0, &event));
    uint8_t done = 0;
    const TtStatus status = tt_event_query(event, &done);
    tt_event_release(event);
    check(status);
    return done != 0;
  }
  void synchronizeStream(const c10::Stream& stream) const override { synchronizeDevice(stream.device_index()); }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    NoGil no_gil;
    check(tt_synchronize(index < 0 ? current_device() : index));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    uint64_t id = 0;
    check(tt_event_new(stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT, &id));
    if (*event != nullptr) tt_event_release(unpack(*event));
    *event = pack(id);
  }
  void block(void*, const c10::Stream&) const override {}  // one queue: later work already waits
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    uint8_t done = 0;
    check(tt_event_query(unpack(event), &done));
    return done != 0;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    NoGil no_gil;
    check(tt_event_wait(unpack(event)));
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    NoGil no_gil;
    double milliseconds = 0;
    check(tt_event_elapsed(unpack(start), unpack(end), &milliseconds));
    return milliseconds;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) tt_event_release(unpack(event));
  }

 private:
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device_at(index_of(device)), id);
  }
};

}  // namespace

int32_t current_device() { return t_device < 0 ? tt_first_device() : t_device; }

int32_t index_of(const std::optional<c10::Device>& device) {
  return device.has_value() && device->index() >= 0 ? device->index() : current_device();
}

void register_guard() {
  c10::impl::registerDeviceGuard(kDevice, new TpuGuard());
}

}  // namespace torchtpu

int32_t tt_current_device() { return torchtpu::current_device(); }
void tt_set_current_device(int32_t device) { torchtpu::t_device = device; }
