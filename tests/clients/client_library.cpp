#include "tests/clients/client_library.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/library.h>

#include <string>

namespace sconce::clients {
namespace {

template <typename Result>
Result call_operator(const char* name, const at::Tensor& x) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Result(const at::Tensor&)>();
  return op.call(x);
}

at::Tensor count_call(const at::Tensor& x) {
  ++library_state().ticks;
  return x * 1;
}

// Its backward only computes: a TrainStep records the operators of a backward in C++ (docs/recording.md).
struct OwnGradient : torch::autograd::Function<OwnGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return own_gradient(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients.front() * 2};
  }
};

TORCH_LIBRARY(clients, library) {
  library.def("tick", [](const at::Tensor&) { ++library_state().ticks; });
  library.def("scaled", [](const at::Tensor& x) { return x * library_state().setting; });
  library.def("counted(Tensor x) -> Tensor");
  library.def("own_gradient(Tensor x) -> Tensor");
  library.def("pure(Tensor x) -> Tensor", [](const at::Tensor& x) { return at::tanh(x) * 2; }, {at::Tag::pt2_compliant_tag});
  library.def("number", [](const at::Tensor& x) {
    ++library_state().numbers;
    return static_cast<double>(x.size(0)) * 0.1 + library_state().setting;
  });
  library.class_<Counter>("Counter").def(torch::init<>()).def("next", &Counter::next);
}
TORCH_LIBRARY_IMPL(clients, CPU, library) {
  library.impl("counted", &count_call);
  library.impl("own_gradient", &count_call);
}
TORCH_LIBRARY_IMPL(clients, Autograd, library) {
  library.impl("own_gradient", [](const at::Tensor& x) { return OwnGradient::apply(x); });
}

struct LibraryResolver : torch::jit::Resolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& function,
                                                         const torch::jit::SourceRange& place) override {
    const bool is_library = name == "clients" || name == "profiler";
    return is_library ? std::make_shared<torch::jit::BuiltinModule>(name)
                      : torch::jit::nativeResolver()->resolveValue(name, function, place);
  }
  c10::TypePtr resolveType(const std::string& /*name*/, const torch::jit::SourceRange& /*place*/) override {
    return nullptr;
  }
};

}  // namespace

LibraryState& library_state() {
  static LibraryState state;
  return state;
}

std::shared_ptr<torch::jit::Resolver> library_resolver() { return std::make_shared<LibraryResolver>(); }

void tick(const at::Tensor& x) { call_operator<void>("clients::tick", x); }
at::Tensor scaled(const at::Tensor& x) { return call_operator<at::Tensor>("clients::scaled", x); }
at::Tensor counted(const at::Tensor& x) { return call_operator<at::Tensor>("clients::counted", x); }
at::Tensor own_gradient(const at::Tensor& x) { return call_operator<at::Tensor>("clients::own_gradient", x); }
at::Tensor pure(const at::Tensor& x) { return call_operator<at::Tensor>("clients::pure", x); }
double number(const at::Tensor& x) { return call_operator<double>("clients::number", x); }

}  // namespace sconce::clients
