/* For plugins in C that stand before the real one, PLUGIN. `real` has its functions; `api` is what this plugin offers. */
#include <dlfcn.h>
#include <string.h>

#include "pjrt_c_api.h"

static PJRT_Api api, real;

/* Opens the real plugin. Both tables have its functions then. */
static void open_real_plugin(void) {
  void* library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api* (*get)(void) = (const PJRT_Api* (*)(void))dlsym(library, "GetPjrtApi");
  const PJRT_Api* given = get();
  memcpy(&real, given, given->struct_size < sizeof(real) ? given->struct_size : sizeof(real));
  api = real;
}
