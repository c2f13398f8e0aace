// Reports each run of a program to torch.profiler, as kineto reports runs of kernels.
#include "shim.h"

#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#ifndef USE_KINETO
#define USE_KINETO  // torch's wheels have it
#endif
#define FMT_HEADER_ONLY
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>
#include <memory>
#include <set>

namespace torchtpu {
namespace {

using libkineto::ActivityType;

// Names of programs are too long for some viewers. An event's arguments contain the whole list of operators.
constexpr size_t kMaxName = 200;

// Viewers sort rows by these numbers: devices come after the host's threads.
constexpr int64_t kFirstRow = libkineto::kExceedMaxPid;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    const NoGil no_gil;
    note_error(tt_profile_begin());
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    const NoGil no_gil;
    note_error(tt_profile_end(this, [](void* self, const TtDeviceRun* run) { static_cast<Session*>(self)->add(*run); }));
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, INT64_MIN, INT64_MAX);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback operator_of, int64_t begin,
                    int64_t end) override {
    std::set<int32_t> devices;
    for (const auto& run : buffer_->activities) {
      if (run->startTime < begin || run->startTime > end) continue;
      run->endTime = std::min(run->endTime, end);  // the callback that records the time runs a moment after the end
      if (devices.insert(run->device).second) show_device(logger, run->device, begin);
      run->linked = run->id == 0 ? nullptr : operator_of(run->id);
      run->log(logger);
    }
  }

  // processTrace reports the devices.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }

  // Kineto keeps the events as long as the trace.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { tt_profile_enter(id); }
  void popCorrelationId() override { tt_profile_leave(); }

 private:
  void note_error(TtStatus status) {
    if (status == TT_OK) return;
    errors_.push_back(last_error_message());
    status_ = libkineto::TraceStatus::ERROR;
  }

  void add(const TtDeviceRun& run) {
    const std::string name(run.name, run.name_length);
    buffer_->emplace_activity(buffer_->span, ActivityType::CONCURRENT_KERNEL, name.substr(0, kMaxName));
    auto& activity = *buffer_->activities.back();
    activity.startTime = run.begin;
    activity.endTime = run.end;
    activity.device = run.device;
    activity.resource = 0;
    activity.id = static_cast<int32_t>(run.caller);
    activity.addMetadataQuoted("operators", std::string(run.operators, run.operators_length));
    if (run.flops >= 0) activity.addMetadata("flops", run.flops);
    if (run.bytes >= 0) activity.addMetadata("bytes accessed", run.bytes);
  }

  static void show_device(libkineto::ActivityLogger& logger, int32_t device, int64_t time) {
    const std::string number = std::to_string(device);
    logger.handleDeviceInfo({device, kFirstRow + device, "tpu:" + number, "TPU " + number}, time);
    logger.handleResourceInfo({0, 0, device, "programs"}, time);
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
  std::vector<std::string> errors_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config&) override {
    return wanted.contains(ActivityType::CONCURRENT_KERNEL) ? std::make_unique<Session>() : nullptr;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  const std::string name_ = "tpu";
  const std::set<ActivityType> activities_ = {ActivityType::CONCURRENT_KERNEL};
};

}  // namespace

void register_profiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      [] { return std::make_unique<Profiler>(); });
}

}  // namespace torchtpu

#else

// Without this header, torch has no interface for the events of backends.
void torchtpu::register_profiler() {}

#endif
