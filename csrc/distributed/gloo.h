// Gloo as the network of the collectives, with the steps that Gloo does not support.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "collectives.h"
#include "reports.h"

namespace torchtpu {

// The reduction of booleans as a reduction of bytes 0 and 1.
inline c10d::ReduceOp over_booleans(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR: return c10d::ReduceOp::MAX;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND: return c10d::ReduceOp::MIN;
    case c10d::ReduceOp::BXOR: return c10d::ReduceOp::BXOR;
    default: TORCH_CHECK_TYPE(false, "Cannot use ReduceOp.AVG or ReduceOp.PREMUL_SUM with boolean inputs");
  }
}

// A reduction that Gloo supports, with the steps before and after it.
struct Reduction {
  c10d::ReduceOp op;
  int64_t average_over = 0;      // for ReduceOp.AVG: the number of ranks
  std::optional<double> factor;  // for ReduceOp.PREMUL_SUM
  bool of_booleans = false;

  Reduction(const c10d::ReduceOp& wanted, const at::Tensor& tensor, int size) : op(wanted) {
    const auto dtype = tensor.scalar_type();
    if (dtype == at::kBool) {
      of_booleans = true;
      op = over_booleans(wanted);
      return;
    }
    if (wanted.op_ == c10d::ReduceOp::AVG) {
      average_over = size;
      op = c10d::ReduceOp::SUM;
    } else if (wanted.op_ == c10d::ReduceOp::PREMUL_SUM) {
      factor = factor_of(wanted);
      op = c10d::ReduceOp::SUM;
    }
    const bool is_bitwise = op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR || op.op_ == c10d::ReduceOp::BXOR;
    TORCH_CHECK_TYPE(!is_bitwise || c10::isIntegralType(dtype, false), "Cannot use bitwise reductions with ", dtype);
    TORCH_CHECK_TYPE(!c10::isComplexType(dtype) || op.op_ == c10d::ReduceOp::SUM,
                     "all_reduce does not support this ReduceOp on complex tensors");
  }

  // The tensor in a dtype that Gloo can reduce.
  at::Tensor before(at::Tensor tensor) const {
    if (of_booleans) return tensor.view(at::kByte);
    if (factor) tensor.mul_(*factor);
    return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
  }
  // Of parts with a row for each rank.
  at::Tensor of_rows(const at::Tensor& rows) const {
    switch (op.op_) {
      case c10d::ReduceOp::SUM: return rows.sum(0, /*keepdim=*/false, rows.scalar_type());
      case c10d::ReduceOp::PRODUCT: return rows.prod(0, /*keepdim=*/false, rows.scalar_type());
      case c10d::ReduceOp::MIN: return rows.amin(0);
      case c10d::ReduceOp::MAX: return rows.amax(0);
      default: break;
    }
    at::Tensor result = rows[0].clone();
    for (int64_t row = 1; row < rows.size(0); ++row) {
      if (op.op_ == c10d::ReduceOp::BAND) {
        result.bitwise_and_(rows[row]);
      } else if (op.op_ == c10d::ReduceOp::BOR) {
        result.bitwise_or_(rows[row]);
      } else {
        result.bitwise_xor_(rows[row]);
      }
    }
    return result;
  }

  void after(at::Tensor& tensor) const {
    if (average_over == 0) return;
    if (c10::isIntegralType(tensor.scalar_type(), false)) {
      tensor.div_(average_over, "trunc");
    } else {
      tensor.div_(average_over);
    }
  }
};

// The tag of messages about votes. Messages of the user have other tags.
constexpr int kVoteTag = std::numeric_limits<int>::max();

// How many calls that were programs are known by name.
constexpr size_t kMostNoted = 4096;

// A call that has failed because of the network, not because of its arguments.
struct NetworkFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Gloo numbers its collectives, so one thread at a time calls it. After a rank has failed, the connections are closed, and
// later calls fail at once.
class Gloo {
 public:
  Gloo(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store)
      : backend_(std::move(backend)), reports_(std::move(store), backend_->getRank(), backend_->getSize()) {}

  // Calls `ask` and waits until the work is done.
  template <typename F>
  Pointer run(F ask) {
    try {
      Pointer work;
      {
        std::lock_guard lock(asking_);
        work = ask(*backend_);
      }
      work->wait();
      return work;
    } catch (const c10::Error&) {
      throw;
    } catch (const std::exception& error) {
      throw NetworkFailure(error.what());
    }
  }

  // Runs a collective, of which `call` says what all ranks must have called.
  void meet(const std::string& call, bool agrees, const std::function<void()>& work) {
    const auto meeting = [&] {
      if (agrees) agree(call);
    };
    after_meeting(call, meeting, work);
  }

  // Sends an opinion to a rank that votes on the same collective. These messages may come at any time between collectives.
  void send(int to, const TtOpinion& opinion) {
    at::Tensor data = at::empty({static_cast<int64_t>(sizeof(TtOpinion))}, at::kByte);
    std::memcpy(data.data_ptr(), &opinion, sizeof(opinion));
    vote(opinion, [&](c10d::Backend& group, Tensors& message) { return group.send(message, to, kVoteTag); }, data);
  }

  // Waits for an opinion from a rank, in the vote on the collective `opinion.first`.
  void receive(int from, TtOpinion& opinion) {
    at::Tensor data = at::empty({static_cast<int64_t>(sizeof(TtOpinion))}, at::kByte);
    vote(opinion, [&](c10d::Backend& group, Tensors& message) { return group.recv(message, from, kVoteTag); }, data);
    std::memcpy(&opinion, data.data_ptr(), sizeof(opinion));
  }

  // Runs a message to or from a rank.
  void message(const std::string& call, const std::function<void()>& work) {
    check_connected();
    try {
      work();
    } catch (const NetworkFailure& error) {
      reports_.tell(call);
      throw;
    }
  }

  // Notes a call that is a program. `name` is used in errors.
  void note_program(uint64_t number, const std::string& name, const std::string& call) {
    std::lock_guard lock(lost_mutex_);
    programs_[number] = {name, call};
    if (programs_.size() > kMostNoted) programs_.erase(programs_.begin());
  }

  // Says which call this was. If it is late, also what other ranks wait in; later calls fail.
  std::string describe(uint64_t number, bool is_late) {
    std::string name, call;
    {
      std::lock_guard lock(lost_mutex_);
      const auto found = programs_.find(number);
      if (found == programs_.end()) return c10::str("collective number ", number);
      std::tie(name, call) = found->second;
      if (!is_late) return name;
      if (!lost_.empty()) return c10::str(name, ": the process group has failed: ", lost_);
    }
    const std::string reason = c10::str("not all ranks have called it (", reports_.exchange(call), ")");
    lose(c10::str("in ", call, ", ", reason));
    return c10::str(name, ": ", reason);
  }

  bool is_lost() {
    std::lock_guard lock(lost_mutex_);
    return !lost_.empty();
  }

  // An error if the group has failed before.
  void check_connected() {
    std::lock_guard lock(lost_mutex_);
    TORCH_CHECK(lost_.empty(), "the process group has failed before: ", lost_);
  }

  c10d::Backend& backend() { return *backend_; }
  // Whether a group of this process has lost its connections.
  static bool any_lost() { return lost_groups_ > 0; }
  ~Gloo() {
    if (!lost_.empty()) --lost_groups_;
  }
  Gloo(const Gloo&) = delete;
  Gloo& operator=(const Gloo&) = delete;

 private:
  void after_meeting(const std::string& call, const std::function<void()>& meeting, const std::function<void()>& work) {
    check_connected();
    bool has_met = false;
    try {
      meeting();
      has_met = true;
      work();
    } catch (const NetworkFailure& error) {
      const std::string others = reports_.exchange(call);
      const std::string reason =
          c10::str(has_met ? "the connection was lost" : "not all ranks have called it", " (", others, "): ", error.what());
      lose(c10::str("in ", call, ", ", reason));
      TORCH_CHECK(false, reason);
    }
  }

  template <typename F>
  void vote(const TtOpinion& opinion, F ask, const at::Tensor& data) {
    const std::string call = c10::str("the program with collective number ", opinion.first);
    Tensors message{data};
    after_meeting(call, [&] { run([&](auto& group) { return ask(group, message); }); }, [] {});
  }

  // Makes sure that all ranks have called the same collective: Gloo ends the process where they have not.
  void agree(const std::string& call) {
    constexpr int64_t kRoom = 128;
    at::Tensor mine = at::zeros({kRoom}, at::kByte);
    std::memcpy(mine.data_ptr(), call.data(), std::min(call.size(), static_cast<size_t>(kRoom - 1)));
    at::Tensor all = at::empty({backend_->getSize() * kRoom}, at::kByte);
    run([&](auto& group) { return group._allgather_base(all, mine); });
    std::string calls;
    bool same = true;
    for (int64_t rank = 0; rank < backend_->getSize(); ++rank) {
      const std::string theirs(static_cast<const char*>(all.data_ptr()) + rank * kRoom);
      same &= theirs == static_cast<const char*>(mine.data_ptr());
      if (rank < kMostNamed) calls += c10::str(rank == 0 ? "" : ", ", "rank ", rank, ": ", theirs);
    }
    TORCH_CHECK(same, "the ranks have called different collectives, or with different arguments (", calls, ")");
  }

  void lose(const std::string& why) {
    std::lock_guard lock(lost_mutex_);
    if (!lost_.empty()) return;
    lost_ = why;
    ++lost_groups_;
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  Reports reports_;
  std::mutex asking_;
  std::mutex lost_mutex_;
  std::string lost_;  // why the connections are closed; empty while they are not
  std::map<uint64_t, std::pair<std::string, std::string>> programs_;  // the last calls that were programs
  static inline std::atomic<int> lost_groups_{0};
};

}  // namespace torchtpu
