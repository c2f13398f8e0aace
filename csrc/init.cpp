// Registers everything at run time: a linker may drop static initializers that nothing references.
#include "shim.h"

int32_t tt_initialize(void* tracer, void* sparse, char* message, size_t capacity) {
  const auto register_all = [&] {
    torchtpu::set_python(tracer, sparse);
    torchtpu::register_allocator();
    torchtpu::register_guard();
    torchtpu::register_hooks();
    torchtpu::register_views();
    torchtpu::register_copies();
    torchtpu::register_layouts();
    torchtpu::register_fourier();
    torchtpu::register_composites();
    torchtpu::register_attention();
    torchtpu::register_operators();  // after views, copies and sparse tensors, which it must not replace
    torchtpu::register_autocast();
    torchtpu::register_profiler();
  };
  return torchtpu::guarded(register_all, message, capacity);
}
