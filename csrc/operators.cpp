// Reads PyTorch's schemas: which operator computes which, what it writes, and which operators the core lowers.
#include <ATen/core/enum_tag.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "shim.h"

namespace torchtpu {
namespace {

using c10::Argument;
using c10::DispatchKey;
using c10::FunctionSchema;
using c10::OperatorHandle;
using c10::OperatorName;

// All overloads of each base name ("aten::add") at registration.
using Overloads = std::unordered_map<std::string, std::vector<OperatorHandle>>;
Overloads& overloads() {
  static auto* instance = new Overloads();
  return *instance;
}

const c10::Type& element(const c10::TypePtr& type) {
  const c10::Type* inner = type.get();
  if (const auto* optional = inner->castRaw<c10::OptionalType>()) inner = optional->getElementType().get();
  return *inner;
}

ArgKind kind_of(const Argument& argument) {
  const c10::Type& type = element(argument.real_type());
  switch (type.kind()) {
    case c10::TypeKind::ScalarTypeType: return ArgKind::kDtype;
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::StreamObjType: return ArgKind::kIgnored;
    case c10::TypeKind::BoolType: return argument.name() == "pin_memory" ? ArgKind::kIgnored : ArgKind::kValue;
    case c10::TypeKind::ListType: {
      const auto& item = type.castRaw<c10::ListType>()->getElementType();
      return item->kind() == c10::TypeKind::OptionalType ? ArgKind::kIndexList : ArgKind::kValue;
    }
    default: return ArgKind::kValue;
  }
}

// "Tensor?", "int[]", …; "SymInt" becomes "int", because shapes are concrete here. Cached, because printing a type is
// slow and thousands of arguments have few types.
const char* text_of(const c10::TypePtr& type) {
  static thread_local std::unordered_map<const c10::Type*, std::pair<c10::TypePtr, std::string>> texts;
  auto& [kept, text] = texts[type.get()];
  if (kept == nullptr) {
    kept = type;
    text = type->str();
    if (const size_t at = text.find("SymInt"); at != std::string::npos) text.replace(at, 6, "int");
  }
  return text.c_str();
}

TtSchemaArg describe(const Argument& argument) {
  TtSchemaArg described{};
  described.name = argument.name().c_str();
  described.type = text_of(argument.real_type());
  described.is_mutated = is_written(argument);
  described.is_out = is_out(argument);
  if (const auto& value = argument.default_value(); value.has_value()) {
    described.has_default = 1;
    if (value->isInt()) {
      described.default_tag = TT_INT;
      described.default_value = static_cast<double>(value->toInt());
    } else if (value->isDouble()) {
      described.default_tag = TT_FLOAT;
      described.default_value = value->toDouble();
    } else if (value->isBool()) {
      described.default_tag = TT_BOOL;
      described.default_value = value->toBool();
    }
  }
  return described;
}

// Whether `candidate` is `schema` without out= arguments and writes.
bool computes(const FunctionSchema& candidate, const FunctionSchema& schema) {
  const auto& wanted = schema.arguments();
  const auto& offered = candidate.arguments();
  size_t at = 0;
  for (const Argument& argument : wanted) {
    if (is_out(argument)) continue;
    if (at == offered.size()) return false;
    const Argument& other = offered[at++];
    if (other.name() != argument.name() || is_written(other) || *other.real_type() != *argument.real_type()) return false;
  }
  return at == offered.size() && !candidate.returns().empty() && !is_view(candidate);
}

// The operator that computes the written arguments of an in-place or out= form, if there is one.
std::optional<OperatorHandle> functional_of(const FunctionSchema& schema) {
  bool has_out = false;
  bool writes = false;
  for (const Argument& argument : schema.arguments()) {
    has_out |= is_out(argument);
    writes |= is_written(argument);
  }
  if (!writes) return std::nullopt;

  std::string base = schema.name();
  if (!has_out) {
    for (const Argument& result : schema.returns()) {
      if (!is_written(result)) return std::nullopt;  // also returns a new result: its own row computes all
    }
    if (const size_t at = base.find("::__i"); at != std::string::npos && base.ends_with("__")) {
      base.erase(at + 4, 1);  // __ilshift__ → __lshift__
    } else if (base.ends_with('_')) {
      base.pop_back();
    } else {
      return std::nullopt;
    }
  }
  // PyTorch adds "_functional" if the plain name was taken.
  for (const std::string& name : {base, base + "_functional"}) {
    auto same = c10::Dispatcher::singleton().findSchema({name, schema.overload_name()});
    if (same.has_value() && computes(same->schema(), schema)) return same;
    auto found = overloads().find(name);
    if (found == overloads().end()) continue;
    for (const OperatorHandle& candidate : found->second) {
      if (computes(candidate.schema(), schema)) return candidate;
    }
  }
  return std::nullopt;
}

bool has_argument(const FunctionSchema& schema, c10::TypeKind kind) {
  for (const Argument& argument : schema.arguments()) {
    const c10::Type& type = element(argument.real_type());
    if (type.kind() == kind) return true;
    const auto* list = type.castRaw<c10::ListType>();
    if (list != nullptr && element(list->getElementType()).kind() == kind) return true;
  }
  return false;
}

// The kernel of an operator with a row. It holds all that it needs, so a call looks nothing up.
struct Kernel final : c10::OperatorKernel {
  explicit Kernel(const OperatorHandle& handle) : op(handle) {}
  void operator()(const OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) const { call_operator(op, stack); }
  Operator op;
};

// All other operators: those that decompose, and those that libraries define later.
void fallback(const OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
  static auto* known = new std::unordered_map<OperatorHandle, std::unique_ptr<Operator>>();
  static auto* mutex = new std::shared_mutex();
  const Operator* op = nullptr;
  {
    std::shared_lock lock(*mutex);
    if (auto found = known->find(handle); found != known->end()) op = found->second.get();
  }
  if (op == nullptr) {
    auto made = std::make_unique<Operator>(handle);
    std::unique_lock lock(*mutex);
    op = known->try_emplace(handle, std::move(made)).first->second.get();
  }
  call_operator(*op, stack);
}

bool wants_kernel(const OperatorHandle& handle) {
  const FunctionSchema& schema = handle.schema();
  if (handle.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) return false;  // views, copies
  // A composite is differentiated through its parts, but for the few that PyTorch differentiates as a whole, such as
  // silu_backward.
  if (handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
      !handle.hasKernelForDispatchKey(DispatchKey::Autograd))
    return false;
  if (is_view(schema) || handle.hasTag(at::Tag::inplace_view)) return false;  // they change metadata only
  // Operators such as full_like(x, device="cpu"): only PyTorch's composite handles another device.
  return !((handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) || is_structured(handle)) &&
           has_argument(schema, c10::TypeKind::TensorType) && has_argument(schema, c10::TypeKind::DeviceObjType));
}

}  // namespace

std::string short_name(const FunctionSchema& schema) {
  constexpr std::string_view kAten = "aten::";
  std::string name = schema.name();
  if (name.starts_with(kAten)) name.erase(0, kAten.size());
  if (!schema.overload_name().empty()) name.append(1, '.').append(schema.overload_name());
  return name;
}

bool is_written(const Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_out(const Argument& argument) { return argument.kwarg_only() && is_written(argument); }

bool is_structured(const OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

bool is_view(const FunctionSchema& schema) {
  for (const Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

Operator::Operator(const OperatorHandle& handle)
    : handle(handle), functional(handle), name(short_name(handle.schema())), warned_of(name_in_warning(name)) {
  const FunctionSchema& schema = handle.schema();
  if (auto found = functional_of(schema)) functional = *found;

  c10::SmallVector<TtSchemaArg, 16> described;
  for (const Argument& argument : schema.arguments()) {
    has_out |= is_out(argument);
    kinds.push_back(kind_of(argument));
    takes_indices |= kinds.back() == ArgKind::kIndexList;
    if (argument.name() == "check_errors") check_errors = static_cast<int32_t>(described.size());
    described.push_back(describe(argument));
  }
  id = tt_register_operator(name.c_str(), short_name(functional.schema()).c_str(), described.data(), described.size(), &row);
  for (uint32_t position = 0; position < described.size(); ++position) {
    if (described[position].is_mutated) mutated.push_back(position);
  }
  creates = has_out && mutated.size() == 1 && std::ranges::none_of(schema.arguments(), [](const Argument& argument) {
    return !is_out(argument) && std::strstr(text_of(argument.real_type()), "Tensor") != nullptr;
  });
  draws = handle.hasTag(at::Tag::nondeterministic_seeded) || has_argument(schema, c10::TypeKind::GeneratorType);

  for (const Argument& result : schema.returns()) {
    int32_t position = -1;
    if (is_written(result)) {
      for (const uint32_t candidate : mutated) {
        const auto* alias = schema.arguments()[candidate].alias_info();
        if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) position = static_cast<int32_t>(candidate);
      }
      supported &= position >= 0;
    } else if (*result.type() == *c10::TensorType::get()) {
      ++fresh;
    } else {
      supported &= !fresh_list && *result.type() == *c10::ListType::ofTensors();
      fresh_list = true;
    }
    returns.push_back(position);
  }
  supported &= !is_view(schema) && !(fresh_list && fresh > 0);
}

void register_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<OperatorHandle> handles;
  for (const OperatorName& name : dispatcher.getAllOpNames()) {
    if (auto handle = dispatcher.findSchema(name)) {
      handles.push_back(*handle);
      overloads()[name.name].push_back(*handle);
    }
  }
  for (const OperatorHandle& handle : handles) {
    if (!wants_kernel(handle)) continue;
    auto kernel = std::make_unique<Kernel>(handle);
    // The composite of a structured operator would call its out= form, which is further from the user's call.
    if (!kernel->op.supported || !(kernel->op.row.exists || is_structured(handle))) continue;
    // Registered for the life of the process: the handle that would unregister it is leaked.
    new c10::RegistrationHandleRAII(dispatcher.registerImpl(
        handle.operator_name(), DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)),
        std::nullopt, nullptr, "torchtpu"));
  }
  auto* library = new torch::Library(torch::Library::IMPL, "_", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace torchtpu
