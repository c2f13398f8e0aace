// PyTorch's hooks for an accelerator.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "shim.h"

namespace torchtpu {
namespace {

struct TpuHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return tt_is_available() != 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return tt_is_initialized() != 0; }
  void init() const override {
    if (tt_device_count() < 0) throw_last_error();
  }

  c10::DeviceIndex deviceCount() const override { return guard()->deviceCount(); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { guard()->setDevice(device_at(device)); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return guard()->exchangeDevice(device_at(device)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<TpuGenerator>(device < 0 ? current_device() : device);
  }

  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  // Where PyTorch has CUDA, `pin_memory=True` takes memory from CUDA.
  bool isPinnedPtr(const void* data) const override { return tt_is_pinned(data) != 0 || at::detail::getCUDAHooks().isPinnedPtr(data); }
  // All addresses of device memory are in one reservation, which does not tell the device.
  c10::Device getDeviceFromPtr(void*) const override { return device_at(current_device()); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }

 private:
  static const c10::impl::DeviceGuardImplInterface* guard() { return c10::impl::getDeviceGuardImpl(kDevice); }
};

}  // namespace

void register_hooks() { at::RegisterPrivateUse1HooksInterface(new TpuHooks()); }

}  // namespace torchtpu
