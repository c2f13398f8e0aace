// What torch says, where the shim reads it. tests/integration/test_messages.py hears each of them from the torch that is
// installed.
#pragma once

#include <cstring>

namespace torchtpu::messages {

template <size_t count>
bool speaks_of(const char* text, const char* const (&messages)[count]) {
  for (const char* message : messages) {
    if (std::strstr(text, message) != nullptr) return true;
  }
  return false;
}

// A NotImplementedError with one of these says that there is no meta kernel, or only one that asks a backend for its own.
// With none of them it is a kernel's own refusal of its arguments, for the user to see.
constexpr const char* kNoMetaKernel[] = {"Could not run '", "Meta", "meta", "TORCH_LIBRARY_IMPL"};

// The classes of what FakeTensor raises where data decide.
constexpr const char* kDataDecide[] = {"DataDependentOutputException", "DynamicOutputShapeException",
                                       "UnsupportedOperatorException"};

// Of "Tensor.item() cannot be called on meta tensors", and of what torch.library says of sizes that the data decide.
constexpr const char* kNoDataInMeta[] = {"meta tensor", "with meta Tensors"};

// The meta kernels of index_add and index_reduce compare the first slices of their tensors, also where there is none to add.
constexpr const char* kNoFirstSlice[] = {"select(): index 0 out of range"};

// A dtype or an operator that only the CPU lacks.
constexpr const char* kCpuLacks[] = {"not implemented for 'Half'", "not implemented for 'BFloat16'", "Could not run '"};

}  // namespace torchtpu::messages
