// The process group of the device: a c10d backend whose collectives are jobs of the core. A job passes the memory of its
// tensors to Gloo, on a thread of the core.
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <numeric>

#include "agreement.h"
#include "arguments.h"
#include "gloo.h"

namespace torchtpu {
namespace {

class ProcessGroup final : public c10d::Backend {
 public:
  // `processes` has the process of each rank in the plugin's client, or is empty.
  ProcessGroup(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<c10d::Store> store, Clock timeout,
               std::vector<int64_t> processes)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::make_shared<Gloo>(std::move(gloo), std::move(store))),
        options_(c10::make_intrusive<Options>("tpu", timeout)), processes_(std::move(processes)) {}

  const std::string getBackendName() const override { return "tpu"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(Clock timeout) override { options_->timeout = timeout; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override { gloo_->backend().abort(); }

#if TORCHTPU_HAS_FLIGHT_HOOKS
  // The flight recorder of PyTorch.
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(int64_t id, AbortHook hook) override { hooks_->abort.set(id, std::move(hook)); }
  void unregisterAbortHook(int64_t id) override { hooks_->abort.remove(id); }
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t id, CompletionHook hook) override { hooks_->completion.set(id, std::move(hook)); }
  void unregisterCompletionHook(int64_t id) override { hooks_->completion.remove(id); }
#endif

  // What was called is done before the group ends: other ranks wait for it. Messages from other ranks are not waited
  // for, unless a call needs them.
  void shutdown() override {
    if (Gloo::any_lost()) return;
    std::vector<uint64_t> lanes{lane_->id};
    {
      std::lock_guard lock(lanes_mutex_);
      for (const auto& [key, lane] : lanes_) {
        if (std::get<char>(key) == 's') lanes.push_back(lane->id);
      }
    }
    NoGil no_gil;
    try {
      if (std::exchange(is_open_, false)) {
        check(tt_close_group(processes_.data(), processes_.size(), lane_->id, options_->timeout.count()));
      }
      check(tt_finish_lanes(lanes.data(), lanes.size(), options_->timeout.count()));
      if (has_devices_) check(tt_synchronize(-1));
    } catch (const c10::Error& error) {
      TORCH_WARN("process group '", getGroupUid(), "' is destroyed before its calls have ended: ", error.what_without_backtrace());
    }
  }

  Pointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    only(tensors, "broadcast");
    check_root(options.rootRank, size_);
    const bool is_root = options.rootRank == rank_;
    const auto body = [gloo = gloo_, options, is_root](Tensors& in, Tensors& out) {
      gloo->run([&](auto& group) { return group.broadcast(is_root ? in : out, options); });
    };
    Call call{.type = OpType::BROADCAST, .body = body, .agreed = c10::str("root ", options.rootRank, " ", spell(tensors))};
    call.form = TT_BROADCAST;
    call.root = options.rootRank;
    const bool is_program = runs_as_program(call.form);
    if (is_root || is_program) call.inputs = tensors;
    if (!is_root || is_program) call.outputs = tensors;
    call.results = tensors;
    return post(std::move(call));
  }

  Pointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    only(tensors, "allreduce");
    return reduce_all(OpType::ALLREDUCE, tensors, options);
  }

  Pointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return reduce_all(OpType::ALLREDUCE_COALESCED, tensors, options);
  }

  Pointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    const at::Tensor& tensor = only(tensors, "reduce");
    check_root(options.rootRank, size_);
    const Reduction reduction(options.reduceOp, tensor, size_);
    const bool is_root = options.rootRank == rank_;
    const auto body = [gloo = gloo_, options, reduction, is_root](Tensors& in, Tensors& out) {
      // Gloo writes into the tensors of other ranks too.
      Tensors work{reduction.before(is_root ? out[0] : in[0].clone())};
      auto wanted = options;
      wanted.reduceOp = reduction.op;
      gloo->run([&](auto& group) { return group.reduce(work, wanted); });
      if (is_root) reduction.after(out[0]);
    };
    const std::string agreed = c10::str("root ", options.rootRank, " ", name_of(options.reduceOp), " ", spell(tensors));
    Call call{.type = OpType::REDUCE, .inputs = tensors, .body = body, .agreed = agreed, .results = tensors, .computes = true};
    call.form = TT_ALL_REDUCE;
    call.reduction = options.reduceOp;
    if (is_root) {
      call.outputs = tensors;
      call.initial = {0};
    }
    return post(std::move(call));
  }

  Pointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    const at::Tensor& input = only(inputs, "allgather");
    const Tensors& lists = only(outputs, "allgather");
    check_count(lists, size_, "allgather");
    const bool is_even = are_alike(lists, input);
    check_own(lists, rank_, input, "allgather");
    if (!is_even && runs_as_program(TT_ALL_GATHER)) return gather_uneven(lists, input);
    const auto body = [gloo = gloo_, options, is_even, rank = rank_](Tensors& in, Tensors& out) {
      if (is_even) {
        std::vector<Tensors> results{out};
        gloo->run([&](auto& group) { return group.allgather(results, in, options); });
        return;
      }
      out[static_cast<size_t>(rank)].copy_(in[0]);
      for (size_t root = 0; root < out.size(); ++root) {
        Tensors part{out[root]};
        gloo->run([&](auto& group) { return group.broadcast(part, {.rootRank = static_cast<int64_t>(root)}); });
      }
    };
    Call call{.type = OpType::ALLGATHER, .inputs = inputs, .outputs = lists, .body = body, .agreed = spell(lists)};
    if (is_even) call.form = TT_ALL_GATHER_LIST;
    return post(std::move(call));
  }

  Pointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return gather_all(OpType::_ALLGATHER_BASE, outputs, inputs, options);
  }

  Pointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return gather_all(kAllGatherCoalesced, outputs, inputs, options);
  }

  Pointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    const at::Tensor& input = only(inputs, "gather");
    check_root(options.rootRank, size_);
    const bool is_root = options.rootRank == rank_;
    TORCH_CHECK_VALUE(is_root || outputs.empty(), "ProcessGroup::gather: requires empty output on non-root");
    const auto body = [gloo = gloo_, options, is_root](Tensors& in, Tensors& out) {
      std::vector<Tensors> results;
      if (is_root) results.push_back(out);
      gloo->run([&](auto& group) { return group.gather(results, in, options); });
    };
    Call call{.type = OpType::GATHER, .inputs = inputs, .body = body};
    call.form = TT_ALL_GATHER_LIST;
    call.agreed = c10::str("root ", options.rootRank, " ", spell(inputs));
    if (is_root) {
      call.outputs = only(outputs, "gather");
      check_count(call.outputs, size_, "gather");
      check_alike(call.outputs, input, "gather");
    }
    return post(std::move(call));
  }

  Pointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    const at::Tensor& output = only(outputs, "scatter");
    check_root(options.rootRank, size_);
    const bool is_root = options.rootRank == rank_;
    TORCH_CHECK_VALUE(is_root || inputs.empty(), "ProcessGroup::scatter: requires empty input on non-root");
    const auto body = [gloo = gloo_, options, is_root](Tensors& in, Tensors& out) {
      std::vector<Tensors> parts;
      if (is_root) parts.push_back(in);
      gloo->run([&](auto& group) { return group.scatter(out, parts, options); });
    };
    Call call{.type = OpType::SCATTER, .outputs = outputs, .body = body};
    call.form = TT_SCATTER;
    call.root = options.rootRank;
    call.agreed = c10::str("root ", options.rootRank, " ", spell(outputs));
    if (is_root) {
      call.inputs = only(inputs, "scatter");
      check_count(call.inputs, size_, "scatter");
      check_alike(call.inputs, output, "scatter");
    } else if (runs_as_program(call.form)) {
      call.inputs.assign(static_cast<size_t>(size_), output);
    }
    return post(std::move(call));
  }

  Pointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override {
    const at::Tensor& output = only(outputs, "reduce_scatter");
    const Tensors& lists = only(inputs, "reduce_scatter");
    check_count(lists, size_, "reduce_scatter");
    const Reduction reduction(options.reduceOp, output, size_);
    const bool is_even = are_alike(lists, output);
    check_own(lists, rank_, output, "reduce_scatter");
    if (!is_even && runs_as_program(TT_REDUCE_SCATTER)) return scatter_uneven(output, lists, options.reduceOp);
    const auto body = [gloo = gloo_, reduction, is_even, rank = rank_](Tensors& in, Tensors& out) {
      if (is_even) return scatter_reduced(*gloo, reduction, at::cat(in), out[0]);
      for (size_t root = 0; root < in.size(); ++root) {
        Tensors work{reduction.before(in[root].clone())};
        c10d::ReduceOptions wanted;
        wanted.reduceOp = reduction.op;
        wanted.rootRank = static_cast<int64_t>(root);
        gloo->run([&](auto& group) { return group.reduce(work, wanted); });
        if (static_cast<int>(root) == rank) out[0].copy_(as_before(work[0], out[0]));
      }
      reduction.after(out[0]);
    };
    const std::string agreed = c10::str(name_of(options.reduceOp), " ", spell(lists));
    Call call{.type = OpType::REDUCE_SCATTER, .inputs = lists, .outputs = outputs, .body = body, .agreed = agreed, .computes = true};
    if (is_even) call.form = TT_REDUCE_SCATTER_LIST;
    call.reduction = options.reduceOp;
    return post(std::move(call));
  }

  Pointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return scatter_reduced(OpType::_REDUCE_SCATTER_BASE, outputs, inputs, options);
  }

  Pointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return scatter_reduced(kReduceScatterCoalesced, outputs, inputs, options);
  }

  Pointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    TORCH_CHECK(output.scalar_type() == input.scalar_type(), "output and input must have the same dtype");
    auto received = split_bytes(output, output_splits, size_), sent = split_bytes(input, input_splits, size_);
    const auto body = [gloo = gloo_, options, received, sent](Tensors& in, Tensors& out) mutable {
      gloo->run([&](auto& group) { return group.alltoall_base(out[0], in[0], received, sent, options); });
    };
    Call call{.type = OpType::ALLTOALL_BASE, .inputs = {input}, .outputs = {output}, .body = body};
    // With sizes, no rank knows whether the parts of the others are equal.
    if (output_splits.empty() && input_splits.empty()) call.form = TT_ALL_TO_ALL;
    return post(std::move(call));
  }

  Pointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    check_count(outputs, size_, "alltoall");
    check_count(inputs, size_, "alltoall");
    const auto body = [gloo = gloo_, options](Tensors& in, Tensors& out) {
      std::vector<int64_t> received, sent;
      for (const at::Tensor& tensor : out) received.push_back(tensor.numel());
      for (const at::Tensor& tensor : in) sent.push_back(tensor.numel());
      at::Tensor all_sent = at::cat(in);
      at::Tensor all_received = at::empty({std::accumulate(received.begin(), received.end(), int64_t{0})}, all_sent.options());
      auto counts = received;  // Gloo changes its argument
      gloo->run([&](auto& group) { return group.alltoall_base(all_received, all_sent, counts, sent, options); });
      const auto parts = all_received.split_with_sizes(received);
      for (size_t i = 0; i < out.size(); ++i) out[i].copy_(parts[i]);
    };
    return post({.type = OpType::ALLTOALL, .inputs = inputs, .outputs = outputs, .body = body});
  }

  Pointer send(Tensors& tensors, int peer, int tag) override {
    only(tensors, "send");
    check_peer(peer, size_);
    const auto body = [gloo = gloo_, peer, tag](Tensors& in, Tensors&) {
      gloo->run([&](auto& group) { return group.send(in, peer, tag); });
    };
    return post({.type = OpType::SEND, .inputs = tensors, .body = body, .agreed = c10::str("to rank ", peer, ", tag ", tag),
                 .lane = lane_to(peer, 's', tag)});
  }

  Pointer recv(Tensors& tensors, int peer, int tag) override {
    only(tensors, "recv");
    check_peer(peer, size_);
    const auto body = [gloo = gloo_, peer, tag](Tensors&, Tensors& out) {
      gloo->run([&](auto& group) { return group.recv(out, peer, tag); });
    };
    return post({.type = OpType::RECV, .outputs = tensors, .body = body, .agreed = c10::str("from rank ", peer, ", tag ", tag),
                 .lane = lane_to(peer, 'r', tag)});
  }

  Pointer recvAnysource(Tensors& tensors, int tag) override {
    only(tensors, "recvAnysource");
    auto source = std::make_shared<int>(-1);
    const auto body = [gloo = gloo_, tag, source](Tensors&, Tensors& out) {
      *source = gloo->run([&](auto& group) { return group.recvAnysource(out, tag); })->sourceRank();
    };
    return post({.type = OpType::RECVANYSOURCE, .outputs = tensors, .body = body, .agreed = c10::str("from any rank, tag ", tag),
                 .lane = lane_to(-1, 'r', tag), .host_waits = true, .source = source});
  }

  Pointer barrier(const c10d::BarrierOptions& options) override {
    const auto body = [gloo = gloo_, options](Tensors&, Tensors&) { gloo->run([&](auto& group) { return group.barrier(options); }); };
    return post({.type = OpType::BARRIER, .body = body, .host_waits = true});
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    const auto body = [gloo = gloo_, options, wait_all_ranks](Tensors&, Tensors&) {
      gloo->backend().monitoredBarrier(options, wait_all_ranks);
    };
    post({.type = OpType::BARRIER, .body = body, .agrees = false, .host_waits = true})->wait();
  }

 private:
  static at::Tensor as_before(const at::Tensor& reduced, const at::Tensor& like) {
    if (like.is_complex()) return at::view_as_complex(reduced);
    return like.scalar_type() == at::kBool ? reduced.view(at::kBool) : reduced;
  }

  // Each rank sends each other one its part, and reduces what it receives: `whole` has a part for each rank.
  static void scatter_reduced(Gloo& gloo, const Reduction& reduction, const at::Tensor& whole, at::Tensor& out) {
    const int64_t size = gloo.backend().getSize();
    if (whole.numel() == 0) return;
    at::Tensor sent = reduction.before(whole.reshape({size, -1}));
    at::Tensor received = at::empty(sent.sizes(), sent.options());
    at::Tensor sent_bytes = sent.view({-1}).view(at::kByte), received_bytes = received.view({-1}).view(at::kByte);
    std::vector<int64_t> even;
    gloo.run([&](auto& group) { return group.alltoall_base(received_bytes, sent_bytes, even, even, {}); });
    out.copy_(as_before(reduction.of_rows(received), out).view(out.sizes()));
    reduction.after(out);
  }

  Pointer reduce_all(OpType type, const Tensors& tensors, const c10d::AllreduceOptions& options) {
    std::vector<Reduction> reductions;
    std::vector<int32_t> initial(tensors.size());
    std::iota(initial.begin(), initial.end(), 0);
    for (const at::Tensor& tensor : tensors) reductions.emplace_back(options.reduceOp, tensor, size_);
    const auto body = [gloo = gloo_, options, reductions](Tensors&, Tensors& out) {
      for (size_t i = 0; i < out.size(); ++i) {
        Tensors work{reductions[i].before(out[i])};
        auto wanted = options;
        wanted.reduceOp = reductions[i].op;
        gloo->run([&](auto& group) { return group.allreduce(work, wanted); });
        reductions[i].after(out[i]);
      }
    };
    const std::string agreed = c10::str(name_of(options.reduceOp), " ", spell(tensors));
    Call call{.type = type, .inputs = tensors, .outputs = tensors, .body = body, .agreed = agreed, .initial = initial, .computes = true};
    call.form = TT_ALL_REDUCE;
    call.reduction = options.reduceOp;
    return post(std::move(call));
  }

  Pointer gather_all(OpType type, const Tensors& outputs, const Tensors& inputs, const c10d::AllgatherOptions& options) {
    check_pairs(outputs, inputs, size_, "output tensor size must be equal to world_size times input tensor size");
    const auto body = [gloo = gloo_, options](Tensors& in, Tensors& out) {
      for (size_t i = 0; i < in.size(); ++i) gloo->run([&](auto& group) { return group._allgather_base(out[i], in[i], options); });
    };
    Call call{.type = type, .inputs = inputs, .outputs = outputs, .body = body, .agreed = spell(inputs)};
    call.form = TT_ALL_GATHER;
    return post(std::move(call));
  }

  Pointer scatter_reduced(OpType type, const Tensors& outputs, const Tensors& inputs,
                          const c10d::ReduceScatterOptions& options) {
    check_pairs(inputs, outputs, size_, "input tensor must be the same size as output size times world size");
    std::vector<Reduction> reductions;
    for (const at::Tensor& tensor : outputs) reductions.emplace_back(options.reduceOp, tensor, size_);
    const auto body = [gloo = gloo_, reductions](Tensors& in, Tensors& out) {
      // The factor of PREMUL_SUM is multiplied in place.
      for (size_t i = 0; i < in.size(); ++i) scatter_reduced(*gloo, reductions[i], reductions[i].factor ? in[i].clone() : in[i], out[i]);
    };
    const std::string agreed = c10::str(name_of(options.reduceOp), " ", spell(inputs));
    Call call{.type = type, .inputs = inputs, .outputs = outputs, .body = body, .agreed = agreed, .computes = true};
    call.form = TT_REDUCE_SCATTER;
    call.reduction = options.reduceOp;
    return post(std::move(call));
  }

  // Parts of different sizes, which all ranks know, as rows of the largest size. What a rank does with the part of its own size
  // is no part of a program with the collective, because that is the same on all ranks.
  Pointer gather_uneven(const Tensors& outputs, const at::Tensor& input) {
    at::NoGradGuard no_grad;
    const int64_t row = largest_of(outputs);
    const Tensors inputs{padded(input, row)}, gathered{at::empty({size_ * row}, input.options())};
    check(tt_part_ranks(input.device().index()));
    Call call{.type = OpType::ALLGATHER, .inputs = inputs, .outputs = gathered, .results = outputs};
    call.form = TT_ALL_GATHER;
    Pointer work = post(std::move(call));
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      copy_part(outputs[rank], gathered[0], static_cast<int64_t>(rank) * row);
    }
    return work;
  }

  Pointer scatter_uneven(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op) {
    at::NoGradGuard no_grad;
    const int64_t row = largest_of(inputs);
    Tensors rows;
    for (const at::Tensor& input : inputs) rows.push_back(padded(input, row));
    const Tensors whole{at::cat(rows)}, part{at::empty({row}, output.options())};
    Call call{.type = OpType::REDUCE_SCATTER, .inputs = whole, .outputs = part, .results = {output}};
    call.form = TT_REDUCE_SCATTER;
    call.reduction = op;
    Pointer work = post(std::move(call));
    check(tt_part_ranks(output.device().index()));
    copy_part(output, part[0], 0);
    return work;
  }

  static int64_t largest_of(const Tensors& parts) {
    int64_t most = 0;
    for (const at::Tensor& part : parts) most = std::max(most, part.numel());
    return most;
  }

  static at::Tensor padded(const at::Tensor& part, int64_t row) {
    return at::cat({part.reshape({-1}), at::empty({row - part.numel()}, part.options())});
  }

  static void copy_part(const at::Tensor& output, const at::Tensor& rows, int64_t begin) {
    output.copy_(rows.narrow(0, begin, output.numel()).view(output.sizes()));
  }

  // Whether a call becomes a program on the devices of all ranks. All ranks decide alike.
  bool runs_as_program(TtForm form) {
    if (form == TT_HOST || processes_.empty()) return false;
    std::call_once(looked_, [&] {
      uint8_t has = 0;
      const std::string name = c10::str("a program with collectives of process group '", getGroupUid(), "'");
      const TtAgreement agreement = agreement::of(name, lane_->id, options_->timeout, gloo_);
      NoGil no_gil;
      check(tt_open_group(processes_.data(), processes_.size(), &agreement, &has));
      has_devices_ = is_open_ = has != 0;
    });
    return has_devices_;
  }

  Pointer post(Call call) {
    const bool is_message = c10d::isP2POp(call.type);
    const uint64_t sequence = is_message ? sequence_.load() : ++sequence_;
    static std::atomic<uint64_t> calls{0};
    call.progress = std::make_shared<Progress>(++calls);
    const std::string operation = c10d::opTypeToString(call.type);
    const std::string what = is_message ? call.agreed : c10::str("number ", sequence);
    const std::string name = c10::str(operation, " (", what, " of process group '", getGroupUid(), "')");
    if (call.lane == nullptr) call.lane = lane_;
    const std::string agreed = c10::str(is_message ? "" : c10::str(sequence, " "), operation, " ", call.agreed);
    if (runs_as_program(call.form)) {
      Pointer work;
      const auto run = [&] {
        if (gloo_->is_lost()) {
          // The calls so far may take results that have failed. Later ones are in no program with them.
          check(tt_part_ranks((call.inputs.empty() ? call.outputs : call.inputs)[0].device().index()));
          gloo_->check_connected();
        }
        gloo_->note_program(sequence, name, agreed);
        work = run_program(std::move(call), processes_, rank_, sequence);
      };
      const auto progress = call.progress;
      hooks_->observe(*progress, run);
      return work;
    }
    call.body = [gloo = gloo_, hooks = hooks_, progress = call.progress, agreed, is_message, agrees = call.agrees,
                 body = std::move(call.body)](Tensors& in, Tensors& out) {
      const auto work = [&] { body(in, out); };
      hooks->observe(*progress, [&] { is_message ? gloo->message(agreed, work) : gloo->meet(agreed, agrees, work); });
    };
    return post_job(std::move(call), name, rank_, sequence);
  }

  // Messages to or from a rank have their own lane, so that a message that waits for its peer does not delay others.
  std::shared_ptr<Lane> lane_to(int peer, char direction, int tag) {
    std::lock_guard lock(lanes_mutex_);
    auto& lane = lanes_[{peer, direction, tag}];
    if (!lane) lane = std::make_shared<Lane>();
    return lane;
  }

  std::shared_ptr<Gloo> gloo_;
  std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<Lane> lane_ = std::make_shared<Lane>();
  std::mutex lanes_mutex_;
  std::map<std::tuple<int, char, int>, std::shared_ptr<Lane>> lanes_;
  std::atomic<uint64_t> sequence_{0};
  const std::vector<int64_t> processes_;
  std::once_flag looked_;
  bool has_devices_ = false;
  // Whether the core keeps programs of its collectives.
  bool is_open_ = false;
};

}  // namespace
}  // namespace torchtpu

void* tt_process_group(void* gloo, void* store, int64_t milliseconds, const int64_t* processes, size_t n_processes) {
  try {
    auto inner = pybind11::handle(static_cast<PyObject*>(gloo)).cast<c10::intrusive_ptr<c10d::Backend>>();
    auto shared = pybind11::handle(static_cast<PyObject*>(store)).cast<c10::intrusive_ptr<c10d::Store>>();
    c10::intrusive_ptr<c10d::Backend> group = c10::make_intrusive<torchtpu::ProcessGroup>(
        std::move(inner), std::move(shared), std::chrono::milliseconds(milliseconds),
        std::vector<int64_t>(processes, processes + n_processes));
    return pybind11::cast(std::move(group)).release().ptr();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}
