// The form in which PyTorch's scaled_dot_product_attention calls its parts on the device.
#include <ATen/Context.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>

#include "shim.h"

namespace torchtpu {
namespace {

// Composites, which XLA fuses, unless the user has excluded them (torch.nn.attention.sdpa_kernel), as context parallel asks
// for. Then it is the one operator that also returns the logarithms of the sums.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>&,
                         double, bool, std::optional<double>, bool) {
  const at::Context& context = at::globalContext();
  const auto is_dense = [](const at::Tensor& tensor) { return tensor.layout() == c10::kStrided && tensor.dim() == 4; };
  const bool is_wanted = context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP();
  const bool is_efficient =
      !context.userEnabledMathSDP() && is_wanted && is_dense(query) && is_dense(key) && is_dense(value);
  return static_cast<int64_t>(is_efficient ? at::SDPBackend::efficient_attention : at::SDPBackend::math);
}

}  // namespace

void register_attention() {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
}

}  // namespace torchtpu
