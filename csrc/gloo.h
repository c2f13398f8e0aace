// Gloo as the network of the collectives, with the steps that Gloo does not support.
#pragma once

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "collectives.h"

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
      const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(wanted.supplement_.get());
      TORCH_CHECK(supplement != nullptr, "ReduceOp.PREMUL_SUM needs a factor");
      factor = supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble() : supplement->double_factor;
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
  void after(at::Tensor& tensor) const {
    if (average_over == 0) return;
    if (c10::isIntegralType(tensor.scalar_type(), false)) {
      tensor.div_(average_over, "trunc");
    } else {
      tensor.div_(average_over);
    }
  }
};

// Gloo numbers its collectives, so only one thread may call it at a time.
class Gloo {
 public:
  explicit Gloo(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  // Calls `ask` and waits until the work is done.
  template <typename F>
  Pointer run(F ask) {
    Pointer work;
    {
      std::lock_guard lock(asking_);
      work = ask(*backend_);
    }
    work->wait();
    return work;
  }

  // Checks that all ranks have called the same collective. Gloo would end the process otherwise.
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
      if (rank < 16) calls += c10::str(rank == 0 ? "" : ", ", "rank ", rank, ": ", theirs);
    }
    TORCH_CHECK(same, "the ranks have called different collectives, or with different arguments (", calls, ")");
  }

  c10d::Backend& backend() { return *backend_; }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex asking_;
};

}  // namespace torchtpu
