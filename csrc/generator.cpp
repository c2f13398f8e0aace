// Random state: a Philox key and counter. The device draws the numbers; only the counter is advanced here.
#include <ATen/EmptyTensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "shim.h"

namespace torchtpu {

TpuGenerator::TpuGenerator(int32_t device)
    : c10::GeneratorImpl(device_at(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state{c10::default_rng_seed_val, 0} {}

void TpuGenerator::set_current_seed(uint64_t seed) { state = {seed, 0}; }

uint64_t TpuGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return state.seed;
}

void TpuGenerator::set_state(const c10::TensorImpl& new_state) {
  TORCH_CHECK_TYPE(new_state.device_type() == c10::DeviceType::CPU && new_state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                       new_state.is_contiguous(),
                   "expected the RNG state as a contiguous CPU tensor of dtype torch.uint8");
  TORCH_CHECK(new_state.numel() == sizeof(state), "expected an RNG state of ", sizeof(state), " bytes (seed and offset), got ",
              new_state.numel());
  std::memcpy(&state, new_state.data_dtype_initialized<uint8_t>(), sizeof(state));
}

c10::intrusive_ptr<c10::TensorImpl> TpuGenerator::get_state() const {
  at::TensorBase tensor = at::detail::empty_cpu({sizeof(state)}, c10::ScalarType::Byte);
  std::memcpy(tensor.mutable_data_ptr(), &state, sizeof(state));
  return tensor.getIntrusivePtr();
}

TpuGenerator* TpuGenerator::clone_impl() const {
  auto* copy = new TpuGenerator(device().index());
  copy->state = state;
  return copy;
}

const at::Generator& default_generator(int32_t device) {
  static auto* mutex = new std::mutex();
  static auto* generators = new std::deque<at::Generator>();  // a deque: references stay valid when it grows
  std::lock_guard lock(*mutex);
  while (generators->size() <= static_cast<size_t>(device)) {
    generators->push_back(at::make_generator<TpuGenerator>(static_cast<int32_t>(generators->size())));
  }
  return (*generators)[static_cast<size_t>(device)];
}

}  // namespace torchtpu

void* tt_default_generator(int32_t device) {
  HANDLE_TH_ERRORS
  return THPGenerator_Wrap(torchtpu::default_generator(device));
  END_HANDLE_TH_ERRORS
}
