#include "base/call_watch.h"
#include "ir/refusal.h"
#include "plan/callees.h"
#include "plan/fork_pool.h"
#include "plan/program.h"
#include "plan/steps/call_step.h"
#include "plan/steps/steps.h"

#include <ATen/core/class_type.h>
#include <ATen/core/function.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <pthread.h>
#include <algorithm>
#include <sstream>

namespace sconce {
namespace {

bool holds_objects(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::ClassType) {
    return true;
  }
  const auto tuple = type->cast<c10::TupleType>();
  return tuple && std::any_of(tuple->elements().begin(), tuple->elements().end(), holds_objects);
}

class LessThan {
 public:
  explicit LessThan(Callees& callees) : callees_(callees) {}

  bool operator()(const c10::IValue& a, const c10::IValue& b) const {
    if (a.isObject()) {
      return is_less_object(a, b);
    }
    if (a.isTuple()) {
      return is_less_tuple(a.toTupleRef().elements(), b.toTupleRef().elements());
    }
    return c10::getLessThanComparator(a)(a, b);
  }

 private:
  bool is_less_object(const c10::IValue& a, const c10::IValue& b) const {
    if (a.is(b)) {
      return false;  // whatever __lt__ returns: an order must be strict
    }
    torch::jit::Stack stack = {a, b};
    call(callees_.find(a.toObjectRef().type()->getMethod("__lt__")), stack);
    return stack.front().toBool();
  }

  template <typename Elements>
  bool is_less_tuple(const Elements& a, const Elements& b) const {
    for (size_t i = 0; i < a.size(); ++i) {
      if ((*this)(a[i], b[i])) {
        return true;
      }
      if (!(a[i] == b[i])) {
        return false;
      }
    }
    return false;
  }

  Callees& callees_;
};

// Returns whether the node sorts a list of objects, or of tuples that hold objects.
bool sorts_objects(const Node& node) {
  if ((node.opcode() != Opcode::kSort && node.opcode() != Opcode::kSorted) || node.inputs().empty()) {
    return false;
  }
  const auto list = node.input(0)->type()->cast<c10::ListType>();
  return list && holds_objects(list->getElementType());
}

// Raises where objects of this class have no proper `__lt__`, as LibTorch's operator does for the first element of a list.
void expect_order(const c10::IValue& element) {
  if (element.isTuple()) {
    std::ranges::for_each(element.toTupleRef().elements(), expect_order);
  } else if (element.isObject()) {
    std::stringstream why_not;
    TORCH_CHECK(c10::checkObjectSortSchema(element.toObjectRef().type(), why_not) != nullptr, why_not.str());
  }
}

// LibTorch's operator compares objects by running `__lt__` on its executor (rule R7); this step runs it on a plan. As in
// LibTorch, the order is that of std::sort: the order of equal elements is unspecified, but always the same.
auto sort_of(const Node& node, Callees& callees) {
  return [returns_copy = node.opcode() == Opcode::kSorted, &callees](Frame& frame) {
    const bool reverse = frame.stack.size() > 1 && frame.stack[1].toBool();
    c10::List<c10::IValue> list = frame.stack[0].toList();
    if (returns_copy) {
      list = list.copy();
    }
    if (!list.empty()) {
      expect_order(list.get(0));
    }
    const LessThan less(callees);
    std::sort(list.begin(), list.end(),
              [&](const c10::IValue& a, const c10::IValue& b) { return reverse ? less(b, a) : less(a, b); });
    frame.stack.clear();
    if (returns_copy) {
      frame.stack.emplace_back(std::move(list));
    }
  };
}

// Finds a function's plan without a lookup, as long as it is the same as the last time.
class CalleeCache {
 public:
  explicit CalleeCache(Callees& callees) : callees_(callees) {}
  CalleeCache(CalleeCache&& other) noexcept : callees_(other.callees_) {}

  const Callee& find(torch::jit::Function& function) const {
    const Callee* last = last_.load(std::memory_order_acquire);
    if (last == nullptr || last->function != &function) {
      last = &callees_.find(function);
      last_.store(last, std::memory_order_release);
    }
    return *last;
  }

 private:
  Callees& callees_;
  mutable std::atomic<const Callee*> last_{nullptr};
};

torch::jit::Function& method_of(const c10::IValue& object, const std::string& name) {
  return object.toObjectRef().type()->getMethod(name);
}

// `with` blocks: an entered context is left once, by its prim::Exit or by the exception that ends the run.
class EnterStep final : public CallStep, public ContextManager {
 public:
  EnterStep(const Node& node, Operands operands, Registers results, Callees& callees)
      : CallStep(node, std::move(operands), std::move(results), false), enter_(callees), exit_(callees) {}

  void run(Frame& frame) const override {
    push_operands(frame);
    frame.entered.push_back({frame.stack.front(), this});
    call(enter_.find(method_of(frame.stack.front(), "__enter__")), frame.stack);
    pop_results(frame);
  }

  c10::IValue leave(c10::IValue object) const override {
    torch::jit::Function& exit = method_of(object, "__exit__");
    torch::jit::Stack stack = {std::move(object), c10::IValue(), c10::IValue(), c10::IValue()};
    call(exit_.find(exit), stack);
    return std::move(stack.front());
  }

 private:
  CalleeCache enter_;
  CalleeCache exit_;
};

auto fork_of(const Node& node, std::shared_ptr<Program> program, const Callees& callees) {
  const c10::TypePtr type = node.output()->type()->expectRef<c10::FutureType>().getElementType();
  return [type, program = std::move(program), &callees](Frame& frame) {
    frame.stack = {
        fork(type, [body = program.get(), arguments = std::move(frame.stack), use = callees.users.use()]() mutable {
          body->run(arguments);
          return std::move(arguments.front());
        })};
  };
}

// Runs at its first `awaitable_wait`, on the waiting thread. It may never be waited for, so it must not keep the program
// alive, and the module must not wait for it.
auto awaitable_of(const Node& node, std::shared_ptr<Program> program) {
  const c10::TypePtr type = node.output()->type()->expectRef<c10::AwaitType>().getElementType();
  return [type, program = std::move(program)](Frame& frame) {
    frame.stack = {c10::make_intrusive<c10::ivalue::Await>(
        type, [weak = std::weak_ptr<Program>(program), arguments = std::move(frame.stack)]() mutable {
          const auto body = weak.lock();
          TORCH_CHECK(body != nullptr, "an awaitable is waited for after the module that made it is gone");
          body->run(arguments);
          return std::move(arguments.front());
        })};
  };
}

// Returns the bytes left on this thread's stack.
size_t stack_left() {
  static thread_local const char* const end = [] {
    pthread_attr_t attributes;
    void* lowest = nullptr;
    size_t size = 0;
    TORCH_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0, "cannot read the attributes of the thread");
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    return static_cast<const char*>(lowest);
  }();
  return static_cast<size_t>(static_cast<const char*>(__builtin_frame_address(0)) - end);
}

}  // namespace

void call(const Callee& callee, torch::jit::Stack& stack) {
  // The stack that an operator at the innermost level may need.
  constexpr size_t kReserve = 512 * 1024;
  TORCH_CHECK(stack_left() > kReserve, callee.function->qualname().qualifiedName(),
              ": calls are nested so deeply that the thread's stack is nearly full (does the recursion end?)");
  if (callee.program != nullptr) {
    callee.program->run(stack);
  } else {
    if (CallWatch::is_on()) {
      CallWatch::note("calls " + callee.function->qualname().qualifiedName() + ", a method of a custom class");
    }
    callee.function->run(stack);
  }
}

Expected<StepPtr> make_call_step(const Node& node, Operands operands, Registers results, Callees* callees) {
  const auto step = [&](auto run) { return make_stack_step(node, std::move(operands), std::move(results), std::move(run)); };
  if (node.opcode() == Opcode::kWait) {
    return step([](Frame& frame) { frame.stack.front() = wait(frame.stack.front().toFuture()); });
  }
  if (node.opcode() == Opcode::kExit) {
    return step([](Frame& frame) {
      frame.stack.clear();
      EnteredContext context = std::move(frame.entered.back());
      frame.entered.pop_back();
      frame.stack.push_back(context.manager->leave(std::move(context.object)));
    });
  }
  if (callees == nullptr) {
    return refusal_of(node, "a graph on its own cannot call: only the methods of a module can");
  }
  switch (node.opcode()) {
    case Opcode::kCallFunction: {
      // The first operand is the function itself.
      torch::jit::Function* function = node.input(0)->type()->expectRef<c10::FunctionType>().function();
      operands.erase(operands.begin());
      return step([function, cache = CalleeCache(*callees)](Frame& frame) { call(cache.find(*function), frame.stack); });
    }
    case Opcode::kCallMethod:
      return step([name = node.attribute_as<std::string>(attr::kName), cache = CalleeCache(*callees)](Frame& frame) {
        call(cache.find(method_of(frame.stack.front(), name)), frame.stack);
      });
    case Opcode::kEnter:
      return StepPtr(std::make_unique<EnterStep>(node, std::move(operands), std::move(results), *callees));
    case Opcode::kSort:
    case Opcode::kSorted: return step(sort_of(node, *callees));
    default: {  // prim::fork and prim::awaitable
      auto body = callees->find(node.attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph));
      if (!body) {
        return body.refusal();
      }
      return node.opcode() == Opcode::kAwaitable ? step(awaitable_of(node, std::move(*body)))
                                                 : step(fork_of(node, std::move(*body), *callees));
    }
  }
}

bool is_call(const Node& node) { return runs_user_code(node.opcode()) || sorts_objects(node); }

}  // namespace sconce
