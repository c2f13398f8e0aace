// Fourier transforms of 16-bit floats. PyTorch's composites refuse them on all devices but a few listed ones, before
// any kernel of this backend is called.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

// Computes in float32. As on CUDA, the result is float16 or complex32 only if the input is.
void transform(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  const at::Tensor self = (*stack)[base].toTensor();
  const bool is_half = self.scalar_type() == at::kHalf || self.scalar_type() == at::kComplexHalf;
  if (self.scalar_type() == at::kComplexHalf) {
    (*stack)[base] = self.to(at::kComplexFloat);
  } else if (is_half || self.scalar_type() == at::kBFloat16) {
    (*stack)[base] = self.to(at::kFloat);
  }
  at::Tensor out;
  if (is_half && op.operator_name().overload_name == "out") {
    out = stack->back().toTensor();
    (*stack).back() = at::empty({0}, out.options().dtype(out.is_complex() ? at::kComplexFloat : at::kFloat));
  }
  // A composite is registered for every device's key.
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (!is_half) return;
  const at::Tensor wide = stack->back().toTensor();
  const at::Tensor result = wide.to(wide.is_complex() ? at::kComplexHalf : at::kHalf);
  if (out.defined()) {
    at::native::resize_output(out, result.sizes());
    out.copy_(result);
  }
  stack->back() = out.defined() ? out : result;
}

}  // namespace

void register_fourier() {
  for (const auto key : {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) {
    auto& m = *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    for (const std::string direction : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
      for (const std::string dimensions : {"", "2", "n"}) {
        for (const std::string overload : {"", ".out"}) {
          const std::string name = "fft_" + direction + dimensions + overload;
          m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&transform>());
        }
      }
    }
  }
}

}  // namespace torchtpu
