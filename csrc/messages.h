// Error messages of torch that the shim reads. tests/integration/test_messages.py checks each with the installed
// torch.
#pragma once

#include <cstring>

namespace torchtpu::messages {

template <size_t count>
bool contains_any(const char* text, const char* const (&messages)[count]) {
  for (const char* message : messages) {
    if (std::strstr(text, message) != nullptr) return true;
  }
  return false;
}

// A NotImplementedError that contains one of these means that there is no meta kernel, or only one that calls a
// backend. Otherwise the kernel refuses its arguments, which is an error for the user.
constexpr const char* kNoMetaKernel[] = {"Could not run '", "Meta", "meta", "TORCH_LIBRARY_IMPL"};

// The classes of FakeTensor's errors about results that depend on data.
constexpr const char* kDataDecide[] = {"DataDependentOutputException", "DynamicOutputShapeException",
                                       "UnsupportedOperatorException"};

// Parts of "Tensor.item() cannot be called on meta tensors", and of torch.library's message about sizes that depend
// on data. The last one comes from meta kernels in Python that refuse deterministic algorithms because of CUDA's
// kernels. Those of this backend are deterministic.
constexpr const char* kNoDataInMeta[] = {"meta tensor", "with meta Tensors", "does not have a deterministic implementation"};

// The meta kernels of index_add and index_reduce compare the first slices of their tensors, even if there are none.
constexpr const char* kNoFirstSlice[] = {"select(): index 0 out of range"};

// Errors about a dtype or an operator that only the CPU lacks.
constexpr const char* kCpuLacks[] = {"not implemented for 'Half'", "not implemented for 'BFloat16'", "Could not run '"};

}  // namespace torchtpu::messages
