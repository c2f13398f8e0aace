/* A plugin that passes everything on to another one, PLUGIN, and fails at random once `faults` is called. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

/* What this plugin returns in place of the other's error; told apart by its first field. */
struct fault {
  uint64_t tag;
  PJRT_Error_Code code;
  char message[96];
};
static const uint64_t TAG = 0x6661756c74794552;

static atomic_uint_fast64_t state, one_in, injected;

static uint64_t next_number(void) { /* splitmix64 */
  uint64_t z = atomic_fetch_add(&state, 0x9e3779b97f4a7c15) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/* From now on one in so many calls fails; none if it is 0. Returns how many have failed since the last call. */
uint64_t faults(uint64_t seed, uint64_t rate) {
  atomic_store(&state, seed);
  atomic_store(&one_in, rate);
  return atomic_exchange(&injected, 0);
}

static PJRT_Error* fault(const char* function) {
  static const PJRT_Error_Code codes[] = {PJRT_Error_Code_RESOURCE_EXHAUSTED, PJRT_Error_Code_INTERNAL,
                                          PJRT_Error_Code_UNAVAILABLE, PJRT_Error_Code_INVALID_ARGUMENT,
                                          PJRT_Error_Code_ABORTED};
  const uint64_t rate = atomic_load(&one_in);
  if (rate == 0) return NULL;
  const uint64_t number = next_number();
  if (number % rate != 0) return NULL;
  atomic_fetch_add(&injected, 1);
  struct fault* made = calloc(1, sizeof(*made));
  made->tag = TAG;
  made->code = codes[(number >> 32) % (sizeof(codes) / sizeof(codes[0]))];
  strcpy(made->message, "injected into ");
  strncat(made->message, function, sizeof(made->message) - strlen(made->message) - 1);
  return (PJRT_Error*)made;
}

static int is_fault(const PJRT_Error* error) { return ((const struct fault*)error)->tag == TAG; }

static void destroy_error(PJRT_Error_Destroy_Args* args) {
  if (is_fault(args->error)) free(args->error);
  else real.PJRT_Error_Destroy(args);
}

static void message_of_error(PJRT_Error_Message_Args* args) {
  if (!is_fault(args->error)) return real.PJRT_Error_Message(args);
  args->message = ((const struct fault*)args->error)->message;
  args->message_size = strlen(args->message);
}

static PJRT_Error* code_of_error(PJRT_Error_GetCode_Args* args) {
  if (!is_fault(args->error)) return real.PJRT_Error_GetCode(args);
  args->code = ((const struct fault*)args->error)->code;
  return NULL;
}

/* An event that ends with an error: the callback gets this plugin's error in place of none. */
static PJRT_Error* on_ready(PJRT_Event_OnReady_Args* args);
struct waiting {
  PJRT_Event_OnReadyCallback callback;
  void* argument;
  PJRT_Error* error;
};
static void when_ready(PJRT_Error* error, void* argument) {
  struct waiting waiting = *(struct waiting*)argument;
  free(argument);
  if (error != NULL) {
    PJRT_Error_Destroy_Args destroy = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE, .error = waiting.error};
    if (waiting.error != NULL) destroy_error(&destroy);
    waiting.callback(error, waiting.argument);
  } else {
    waiting.callback(waiting.error, waiting.argument);
  }
}
static PJRT_Error* on_ready(PJRT_Event_OnReady_Args* args) {
  struct waiting* waiting = malloc(sizeof(*waiting));
  *waiting = (struct waiting){args->callback, args->user_arg, fault("PJRT_Event_OnReady")};
  PJRT_Event_OnReady_Args other = *args;
  other.callback = when_ready;
  other.user_arg = waiting;
  return real.PJRT_Event_OnReady(&other);
}

/* Functions that do something and may fail. Those that only describe or free something do not fail here. */
#define FAILING(OF)                     \
  OF(PJRT_Client_Compile)               \
  OF(PJRT_Client_BufferFromHostBuffer)  \
  OF(PJRT_Client_CreateUninitializedBuffer) \
  OF(PJRT_LoadedExecutable_Execute)     \
  OF(PJRT_Executable_DeserializeAndLoad) \
  OF(PJRT_Executable_Serialize)         \
  OF(PJRT_LoadedExecutable_GetExecutable) \
  OF(PJRT_Executable_GetCompiledMemoryStats) \
  OF(PJRT_Executable_GetCostAnalysis)   \
  OF(PJRT_Buffer_ToHostBuffer)          \
  OF(PJRT_Buffer_CopyToDevice)          \
  OF(PJRT_Buffer_UnsafePointer)         \
  OF(PJRT_Buffer_ReadyEvent)            \
  OF(PJRT_Buffer_OnDeviceSizeInBytes)   \
  OF(PJRT_Buffer_IncreaseExternalReferenceCount) \
  OF(PJRT_Event_Await)                  \
  OF(PJRT_Device_MemoryStats)

#define WRAPPER(NAME)                                  \
  static PJRT_Error* failing_##NAME(NAME##_Args* args) { \
    PJRT_Error* error = fault(#NAME);                  \
    return error != NULL ? error : real.NAME(args);    \
  }
FAILING(WRAPPER)

const PJRT_Api* GetPjrtApi(void) {
  open_real_plugin();
  api.PJRT_Error_Destroy = destroy_error;
  api.PJRT_Error_Message = message_of_error;
  api.PJRT_Error_GetCode = code_of_error;
  api.PJRT_Event_OnReady = on_ready;
#define REPLACE(NAME) api.NAME = failing_##NAME;
  FAILING(REPLACE)
  return &api;
}
