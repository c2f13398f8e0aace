/* A plugin that stands before the CPU plugin, PLUGIN, and acts as libtpu does in several processes: each process uses one
 * device of a client that has a device of every process. It reads libtpu's variables.
 *
 * A program with several replicas runs on the real devices of each process, with the inputs of all, which the processes
 * exchange through sockets. Each returns the results of its own replica. Such programs run one after another, in the order
 * in which they were launched: as on a chip, processes that launch them in different orders wait for each other.
 *
 * A CPU device accepts a limited number of programs that have not run. Programs that wait for a collective could so keep
 * its replica out. So the real client has twice the devices: the first half for replicas, the second half, with the same
 * numbers, for all other programs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin.h"

enum { MOST = 16 };
#define ARGS(NAME, ...) NAME##_Args args = {.struct_size = NAME##_Args_STRUCT_SIZE, __VA_ARGS__}

static PJRT_Client* client;
static PJRT_Device* devices[2 * MOST];
static int own, count = 1, listener = -1, peers[MOST];
static int seconds = 120;

/* ---- calls of the real plugin ---- */

/* The text of an error, which is freed; empty if there is none. */
static int failed(PJRT_Error* error, char* text, size_t room) {
  if (error == NULL) return 0;
  ARGS(PJRT_Error_Message, .error = error);
  real.PJRT_Error_Message(&args);
  snprintf(text, room, "%.*s", (int)args.message_size, args.message);
  PJRT_Error_Destroy_Args destroy = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE, .error = error};
  real.PJRT_Error_Destroy(&destroy);
  return 1;
}

static int await(PJRT_Event* event, char* text, size_t room) {
  if (event == NULL) return 0;
  ARGS(PJRT_Event_Await, .event = event);
  const int bad = failed(real.PJRT_Event_Await(&args), text, room);
  PJRT_Event_Destroy_Args destroy = {.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE, .event = event};
  real.PJRT_Event_Destroy(&destroy);
  return bad;
}

static void drop_buffer(PJRT_Buffer* buffer) {
  if (buffer == NULL) return;
  ARGS(PJRT_Buffer_Destroy, .buffer = buffer);
  real.PJRT_Buffer_Destroy(&args);
}

static int id_of(PJRT_Device* device) {
  ARGS(PJRT_Device_GetDescription, .device = device);
  real.PJRT_Device_GetDescription(&args);
  PJRT_DeviceDescription_Id_Args id = {.struct_size = PJRT_DeviceDescription_Id_Args_STRUCT_SIZE,
                                       .device_description = args.device_description};
  real.PJRT_DeviceDescription_Id(&id);
  return id.id;
}

static PJRT_Device* own_device(void) {
  return devices[count + own];
}

/* Begins to copy a buffer to new memory. */
static PJRT_Error* read_buffer(PJRT_Buffer* buffer, char** bytes, size_t* size, PJRT_Event** event) {
  ARGS(PJRT_Buffer_ToHostBuffer, .src = buffer);
  PJRT_Error* error = real.PJRT_Buffer_ToHostBuffer(&args);
  if (error != NULL) return error;
  *size = args.dst_size;
  *bytes = malloc(args.dst_size + 1);
  args.dst = *bytes;
  error = real.PJRT_Buffer_ToHostBuffer(&args);
  *event = args.event;
  return error;
}

/* ---- the network ---- */

static int transfer(int other, char* data, size_t size, int sends) {
  while (size > 0) {
    const ssize_t moved = sends ? send(peers[other], data, size, MSG_NOSIGNAL) : recv(peers[other], data, size, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return 0;
    data += moved;
    size -= (size_t)moved;
  }
  return 1;
}

static void set_up(int socket_of_peer) {
  const struct timeval limit = {.tv_sec = seconds};
  const int yes = 1;
  setsockopt(socket_of_peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket_of_peer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(socket_of_peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/* Connects to the process of this number, which may not listen yet. */
static int connect_to(int other) {
  char list[4096], host[256] = "";
  snprintf(list, sizeof(list), "%s", getenv("TPU_PROCESS_ADDRESSES"));
  char* rest = NULL;
  char* address = strtok_r(list, ",", &rest);
  for (int i = 0; i < other; ++i) address = strtok_r(NULL, ",", &rest);
  char* colon = strrchr(address, ':');
  snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(host, colon + 1, &hints, &found) != 0) return 0;
  for (int i = 0; i < seconds * 50; ++i) {
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(made, found->ai_addr, found->ai_addrlen) == 0) {
      freeaddrinfo(found);
      set_up(made);
      peers[other] = made;
      return transfer(other, (char*)&own, sizeof(own), 1);
    }
    close(made);
    usleep(20000);
  }
  freeaddrinfo(found);
  return 0;
}

/* Connections go from the process with the larger number to the other. */
static int connected(int other) {
  if (peers[other] != 0) return peers[other] > 0;
  if (own > other) return connect_to(other);
  while (peers[other] == 0) {
    const int made = accept(listener, NULL, NULL);
    int number = -1;
    if (made < 0) return 0;
    set_up(made);
    if (recv(made, &number, sizeof(number), MSG_WAITALL) != sizeof(number) || number < 0 || number >= count) return 0;
    peers[number] = made;
  }
  return 1;
}

/* ---- programs of several replicas ---- */

struct array {
  PJRT_Buffer_Type type;
  int64_t dims[16];
  size_t rank, size;
  char* bytes;
  PJRT_Event* event;
};

struct header {
  uint64_t program, size;
  int64_t launch, inputs, is_failed;
};

struct run {
  struct run* next;
  PJRT_LoadedExecutable* executable;
  int launch, num_inputs, num_outputs, num_members, members[MOST];
  struct array* inputs;
  PJRT_AsyncHostToDeviceTransferManager* results;
  uint64_t program;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct run *first, *last; /* `last` is only valid if there is a first */

/* Sends this process's inputs to another, and receives its inputs. Of two, the one with the lower number sends first; the
 * pairs are in one order, so no circle waits. */
static int exchange(const struct run* run, int other, int is_failed, char** theirs, char* text, size_t room) {
  struct header mine = {.program = run->program, .launch = run->launch, .inputs = run->num_inputs, .is_failed = is_failed};
  for (int i = 0; i < run->num_inputs; ++i) mine.size += run->inputs[i].size;
  struct header read = {0};
  int good = connected(other);
  for (int step = 0; good && step < 2; ++step) {
    if ((step == 0) == (own < other)) {
      good = transfer(other, (char*)&mine, sizeof(mine), 1);
      for (int i = 0; good && i < run->num_inputs; ++i) good = transfer(other, run->inputs[i].bytes, run->inputs[i].size, 1);
    } else {
      good = transfer(other, (char*)&read, sizeof(read), 0);
      if (!good) break;
      *theirs = malloc(read.size + 1);
      good = transfer(other, *theirs, read.size, 0);
    }
  }
  if (!good) {
    if (peers[other] > 0) close(peers[other]);
    peers[other] = -1;
    snprintf(text, room, "UNAVAILABLE: process %d does not answer", other);
    return 0;
  }
  if (read.program != mine.program || read.launch != mine.launch || read.size != mine.size) {
    snprintf(text, room, "process %d has launched program %lx as %lx, and process %d %lx as %lx", own, mine.program,
             (long)mine.launch, other, read.program, (long)read.launch);
    return 0;
  }
  if (read.is_failed) snprintf(text, room, "process %d has no inputs", other);
  return !read.is_failed;
}

/* Runs all replicas. Sends the results of this process's own to the buffers that were promised. */
static int run_all(struct run* run, char** inputs, char* text, size_t room) {
  const int members = run->num_members;
  PJRT_Buffer** given = calloc((size_t)(members * run->num_inputs + 1), sizeof(*given));
  PJRT_Buffer** made = calloc((size_t)(members * run->num_outputs + 1), sizeof(*made));
  PJRT_Buffer* const* given_lists[MOST];
  PJRT_Buffer** made_lists[MOST];
  int bad = 0, mine = 0;
  for (int member = 0; member < members; ++member) {
    char* bytes = inputs[member];
    if (run->members[member] == own) mine = member;
    given_lists[member] = given + member * run->num_inputs;
    made_lists[member] = made + member * run->num_outputs;
    for (int i = 0; !bad && i < run->num_inputs; ++i) {
      const struct array* array = &run->inputs[i];
      ARGS(PJRT_Client_BufferFromHostBuffer, .client = client, .data = bytes ? bytes : array->bytes, .type = array->type,
           .dims = array->dims, .num_dims = array->rank,
           .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
           .device = devices[run->members[member]]);
      bad = failed(real.PJRT_Client_BufferFromHostBuffer(&args), text, room) ||
            await(args.done_with_host_buffer, text, room);
      given[member * run->num_inputs + i] = args.buffer;
      if (bytes != NULL) bytes += array->size;
    }
  }
  PJRT_Event* done[MOST] = {NULL};
  if (!bad) {
    PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE, .launch_id = run->launch};
    ARGS(PJRT_LoadedExecutable_Execute, .executable = run->executable, .options = &options, .argument_lists = given_lists,
         .num_devices = (size_t)members, .num_args = (size_t)run->num_inputs, .output_lists = made_lists,
         .device_complete_events = done);
    bad = failed(real.PJRT_LoadedExecutable_Execute(&args), text, room);
  }
  for (int member = 0; member < members; ++member) bad |= await(done[member], text, room);
  for (int i = 0; !bad && i < run->num_outputs; ++i) {
    struct array array = {0};
    bad = failed(read_buffer(made_lists[mine][i], &array.bytes, &array.size, &array.event), text, room) ||
          await(array.event, text, room);
    if (!bad) {
      ARGS(PJRT_AsyncHostToDeviceTransferManager_TransferData, .transfer_manager = run->results, .buffer_index = i,
           .data = array.bytes, .transfer_size = (int64_t)array.size, .is_last_transfer = true);
      bad = failed(real.PJRT_AsyncHostToDeviceTransferManager_TransferData(&args), text, room) ||
            await(args.done_with_h2d_transfer, text, room);
    }
    free(array.bytes);
  }
  for (int i = 0; i < members * run->num_inputs; ++i) drop_buffer(given[i]);
  for (int i = 0; i < members * run->num_outputs; ++i) drop_buffer(made[i]);
  free(given);
  free(made);
  return !bad;
}

static void finish(struct run* run) {
  char text[512] = "", *theirs[MOST] = {NULL};
  int bad = 0;
  for (int i = 0; i < run->num_inputs; ++i) bad |= await(run->inputs[i].event, text, sizeof(text));
  const int is_failed = bad;
  for (int number = 0; number < count; ++number) {
    for (int member = 0; member < run->num_members; ++member) {
      if (run->members[member] != number || number == own) continue;
      if (bad && !is_failed) continue;
      char other_text[512] = "";
      if (exchange(run, number, is_failed, &theirs[member], other_text, sizeof(other_text)) || is_failed) continue;
      bad = 1;
      strcpy(text, other_text);
    }
  }
  if (!bad) bad = !run_all(run, theirs, text, sizeof(text));
  for (int i = 0; bad && i < run->num_outputs; ++i) {
    ARGS(PJRT_AsyncHostToDeviceTransferManager_SetBufferError, .transfer_manager = run->results, .buffer_index = i,
         .error_code = PJRT_Error_Code_UNAVAILABLE, .error_message = text, .error_message_size = strlen(text));
    char ignored[64];
    failed(real.PJRT_AsyncHostToDeviceTransferManager_SetBufferError(&args), ignored, sizeof(ignored));
  }
  ARGS(PJRT_AsyncHostToDeviceTransferManager_Destroy, .transfer_manager = run->results);
  real.PJRT_AsyncHostToDeviceTransferManager_Destroy(&args);
  for (int member = 0; member < run->num_members; ++member) free(theirs[member]);
  for (int i = 0; i < run->num_inputs; ++i) free(run->inputs[i].bytes);
  free(run->inputs);
  free(run);
}

static void* work(void* unused) {
  for (;;) {
    pthread_mutex_lock(&lock);
    while (first == NULL) pthread_cond_wait(&changed, &lock);
    struct run* run = first;
    first = run->next;
    pthread_mutex_unlock(&lock);
    finish(run);
  }
  return unused;
}

static uint64_t hash(const char* bytes, size_t size) { /* FNV-1a */
  uint64_t state = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i) state = (state ^ (uint8_t)bytes[i]) * 0x100000001b3;
  return state;
}

static PJRT_Error* describe_results(PJRT_Executable* executable, struct run* run, PJRT_Buffer** results) {
  PJRT_Executable_NumOutputs_Args number = {.struct_size = PJRT_Executable_NumOutputs_Args_STRUCT_SIZE, .executable = executable};
  PJRT_Executable_OutputElementTypes_Args types = {.struct_size = PJRT_Executable_OutputElementTypes_Args_STRUCT_SIZE,
                                                   .executable = executable};
  PJRT_Executable_OutputDimensions_Args dims = {.struct_size = PJRT_Executable_OutputDimensions_Args_STRUCT_SIZE,
                                                .executable = executable};
  PJRT_Executable_Fingerprint_Args print = {.struct_size = PJRT_Executable_Fingerprint_Args_STRUCT_SIZE,
                                            .executable = executable};
  PJRT_Device_DefaultMemory_Args memory = {.struct_size = PJRT_Device_DefaultMemory_Args_STRUCT_SIZE, .device = own_device()};
  PJRT_Error* error = real.PJRT_Executable_NumOutputs(&number);
  if (error == NULL) error = real.PJRT_Executable_OutputElementTypes(&types);
  if (error == NULL) error = real.PJRT_Executable_OutputDimensions(&dims);
  if (error == NULL) error = real.PJRT_Device_DefaultMemory(&memory);
  if (error != NULL) return error;
  char ignored[64];
  if (!failed(real.PJRT_Executable_Fingerprint(&print), ignored, sizeof(ignored))) {
    run->program = hash(print.executable_fingerprint, print.executable_fingerprint_size);
  }
  run->num_outputs = (int)number.num_outputs;
  PJRT_ShapeSpec* specs = calloc(number.num_outputs, sizeof(*specs));
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < number.num_outputs; ++i) {
    specs[i] = (PJRT_ShapeSpec){.struct_size = PJRT_ShapeSpec_STRUCT_SIZE, .dims = next, .num_dims = dims.dim_sizes[i],
                                .element_type = types.output_types[i]};
    next += dims.dim_sizes[i];
  }
  ARGS(PJRT_Client_CreateBuffersForAsyncHostToDevice, .client = client, .shape_specs = specs,
       .num_shape_specs = number.num_outputs, .memory = memory.memory);
  error = real.PJRT_Client_CreateBuffersForAsyncHostToDevice(&args);
  run->results = args.transfer_manager;
  for (int i = 0; error == NULL && i < run->num_outputs; ++i) {
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args retrieve = {
        .struct_size = PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args_STRUCT_SIZE,
        .transfer_manager = run->results, .buffer_index = i};
    error = real.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(&retrieve);
    results[i] = retrieve.buffer_out;
  }
  free(specs);
  return error;
}

static PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* given) {
  if (given->execute_device != NULL || given->options->launch_id == 0) return real.PJRT_LoadedExecutable_Execute(given);
  struct run* run = calloc(1, sizeof(*run));
  run->executable = given->executable;
  run->launch = given->options->launch_id;
  run->num_inputs = (int)given->num_args;
  run->inputs = calloc(given->num_args + 1, sizeof(*run->inputs));
  ARGS(PJRT_LoadedExecutable_AddressableDevices, .executable = given->executable);
  PJRT_Error* error = real.PJRT_LoadedExecutable_AddressableDevices(&args);
  if (error != NULL) return error;
  run->num_members = (int)args.num_addressable_devices;
  for (int i = 0; i < run->num_members; ++i) run->members[i] = id_of(args.addressable_devices[i]);
  for (size_t i = 0; error == NULL && i < given->num_args; ++i) {
    struct array* array = &run->inputs[i];
    PJRT_Buffer* buffer = given->argument_lists[0][i];
    PJRT_Buffer_ElementType_Args type = {.struct_size = PJRT_Buffer_ElementType_Args_STRUCT_SIZE, .buffer = buffer};
    PJRT_Buffer_Dimensions_Args dims = {.struct_size = PJRT_Buffer_Dimensions_Args_STRUCT_SIZE, .buffer = buffer};
    error = real.PJRT_Buffer_ElementType(&type);
    if (error == NULL) error = real.PJRT_Buffer_Dimensions(&dims);
    if (error != NULL) break;
    array->type = type.type;
    array->rank = dims.num_dims;
    memcpy(array->dims, dims.dims, dims.num_dims * sizeof(*dims.dims));
    error = read_buffer(buffer, &array->bytes, &array->size, &array->event);
  }
  if (error != NULL) return error;
  PJRT_LoadedExecutable_GetExecutable_Args get = {.struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
                                                  .loaded_executable = given->executable};
  error = real.PJRT_LoadedExecutable_GetExecutable(&get);
  if (error == NULL) error = describe_results(get.executable, run, given->output_lists[0]);
  if (error != NULL) return error;
  PJRT_Executable_Destroy_Args destroy = {.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE, .executable = get.executable};
  real.PJRT_Executable_Destroy(&destroy);
  if (given->device_complete_events != NULL) {
    PJRT_Buffer_ReadyEvent_Args ready = {.struct_size = PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE,
                                         .buffer = given->output_lists[0][0]};
    error = real.PJRT_Buffer_ReadyEvent(&ready);
    if (error != NULL) return error;
    given->device_complete_events[0] = ready.event;
  }
  pthread_mutex_lock(&lock);
  if (first == NULL) first = run;
  else last->next = run;
  last = run;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* ---- the client ---- */

static PJRT_Error* create(PJRT_Client_Create_Args* given) {
  const char *addresses = getenv("TPU_PROCESS_ADDRESSES"), *process = getenv("CLOUD_TPU_TASK_ID");
  const char* limit = getenv("TPU_OF_PROCESSES_SECONDS");
  if (limit != NULL) seconds = atoi(limit);
  for (const char* each = addresses; each != NULL && *each != 0; ++each) count += *each == ',';
  own = process != NULL ? atoi(process) : 0;
  const PJRT_NamedValue option = {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "cpu_device_count", .name_size = 16,
                                  .type = PJRT_NamedValue_kInt64, .int64_value = 2 * count, .value_size = 1};
  given->create_options = &option;
  given->num_options = 1;
  /* XLA's threads: each replica of a program blocks one, and other programs need some meanwhile. */
  setenv("NPROC", "16", 1);
  PJRT_Error* error = real.PJRT_Client_Create(given);
  if (error != NULL) return error;
  client = given->client;
  ARGS(PJRT_Client_Devices, .client = client);
  error = real.PJRT_Client_Devices(&args);
  if (error != NULL) return error;
  for (int i = 0; i < 2 * count; ++i) devices[id_of(args.devices[i])] = args.devices[i];
  if (count == 1) return NULL;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(getenv("TPU_PROCESS_PORT")))};
  if (bind(listener, (const struct sockaddr*)&at, sizeof(at)) != 0 || listen(listener, MOST) != 0) perror("listen");
  set_up(listener);
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  pthread_detach(thread);
  return NULL;
}

static PJRT_Error* all_devices(PJRT_Client_Devices_Args* args) {
  args->devices = &devices[count];
  args->num_devices = (size_t)count;
  return NULL;
}

static PJRT_Error* own_devices(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = &devices[count + own];
  args->num_addressable_devices = 1;
  return NULL;
}

static PJRT_Error* own_process(PJRT_Client_ProcessIndex_Args* args) {
  args->process_index = own;
  return NULL;
}

static PJRT_Error* number_of_device(PJRT_DeviceDescription_Id_Args* args) {
  PJRT_Error* error = real.PJRT_DeviceDescription_Id(args);
  args->id %= count;
  return error;
}

static PJRT_Error* process_of_device(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  PJRT_DeviceDescription_Id_Args id = {.struct_size = PJRT_DeviceDescription_Id_Args_STRUCT_SIZE,
                                       .device_description = args->device_description};
  PJRT_Error* error = number_of_device(&id);
  args->process_index = id.id;
  return error;
}

static PJRT_Error* is_addressable(PJRT_Device_IsAddressable_Args* args) {
  args->is_addressable = args->device == own_device();
  return NULL;
}

const PJRT_Api* GetPjrtApi(void) {
  open_real_plugin();
  api.PJRT_Client_Create = create;
  api.PJRT_Client_Devices = all_devices;
  api.PJRT_Client_AddressableDevices = own_devices;
  api.PJRT_Client_ProcessIndex = own_process;
  api.PJRT_DeviceDescription_Id = number_of_device;
  api.PJRT_DeviceDescription_ProcessIndex = process_of_device;
  api.PJRT_Device_IsAddressable = is_addressable;
  api.PJRT_LoadedExecutable_Execute = execute;
  return &api;
}
