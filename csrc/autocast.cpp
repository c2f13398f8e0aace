// Mixed precision: PyTorch's lists of operators that run in lower precision or in float32.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
              "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
              "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
              "safe to autocast.");
}

}  // namespace

void register_autocast() {
  using namespace at;            // the macros below use unqualified names of at::autocast
  using namespace at::autocast;
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) {
    auto* library = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFallthrough());
  }
  auto& m = *new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FLOAT32)
#define FLOAT32_BY_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_BY_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_banned));
}

}  // namespace torchtpu
