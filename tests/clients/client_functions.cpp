#include "tests/clients/client_functions.h"

#include "tests/clients/client_library.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace sconce::clients {
namespace {

constexpr uint32_t kNotRecordable = 18;  // operations at the end

struct Operation {
  const char* name;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const Captured&)> apply;
};

at::Tensor with_gradient_of_gradient(const at::Tensor& x) {
  if (!x.requires_grad() || !c10::GradMode::is_enabled()) {
    return x;
  }
  const at::Tensor inner = (x * x * x).sum();
  return x + torch::autograd::grad({inner}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true).front() * 0.1;
}

at::Tensor with_hook(const at::Tensor& x) {
  at::Tensor y = x * 1.5;
  if (y.requires_grad()) {
    y.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
  }
  return y;
}

const std::vector<Operation>& operations() {
  using at::Tensor;
  static const std::vector<Operation> all = {
      {"x * scale", [](const Tensor& x, const Tensor&, const Captured& c) { return x * c.scale; }},
      {"x + other", [](const Tensor& x, const Tensor& other, const Captured&) { return x + other; }},
      {"x.mm(matrix)", [](const Tensor& x, const Tensor&, const Captured& c) { return x.mm(c.matrix); }},
      {"x.tanh()", [](const Tensor& x, const Tensor&, const Captured&) { return x.tanh(); }},
      {"x.softmax(-1)", [](const Tensor& x, const Tensor&, const Captured&) { return x.softmax(-1); }},
      {"x.data() * 0.5 + x", [](const Tensor& x, const Tensor&, const Captured&) { return x.data() * 0.5 + x; }},
      {"x.data() * scale", [](const Tensor& x, const Tensor&, const Captured& c) { return x.data() * c.scale; }},
      {"x.detach() * scale + x", [](const Tensor& x, const Tensor&, const Captured& c) { return x.detach() * c.scale + x; }},
      {"(x * 2).add_(other)", [](const Tensor& x, const Tensor& other, const Captured&) { return (x * 2).add_(other); }},
      {"x.t().contiguous().t()", [](const Tensor& x, const Tensor&, const Captured&) { return x.t().contiguous().t(); }},
      {"at::cat({x, other + x}).narrow(0, 0, n)",
       [](const Tensor& x, const Tensor& other, const Captured&) {
         return at::cat({x, other + x}).narrow(0, 0, x.size(0));
       }},
      {"at::dropout(x, 0.3, true)",
       [](const Tensor& x, const Tensor&, const Captured&) { return at::dropout(x, 0.3, true); }},
      {"x * rand_like(x)", [](const Tensor& x, const Tensor&, const Captured&) { return x * at::rand_like(x); }},
      {"x.masked_fill(x > 1, 0.5)",
       [](const Tensor& x, const Tensor&, const Captured&) { return x.masked_fill(x > 1, 0.5); }},
      {"x / n", [](const Tensor& x, const Tensor&, const Captured&) { return x / static_cast<double>(x.size(0) + 1); }},
      {"x + grad((x ** 3).sum(), x)",
       [](const Tensor& x, const Tensor&, const Captured&) { return with_gradient_of_gradient(x); }},
      {"x * at::tensor({1, …, 6})",
       [](const Tensor& x, const Tensor&, const Captured&) {
         return x * torch::tensor({1.0F, 0.5F, 2.0F, 1.5F, 0.25F, 1.0F});
       }},
      {"at::layer_norm(x, {6}, scale)",
       [](const Tensor& x, const Tensor&, const Captured& c) { return at::layer_norm(x, {kWidth}, c.scale); }},
      {"x + at::kl_div(x, other.softmax(-1))",
       [](const Tensor& x, const Tensor& other, const Captured&) { return x + at::kl_div(x, other.softmax(-1)); }},
      {"y = x.clone(); y.select(1, 2).mul_(3)",
       [](const Tensor& x, const Tensor&, const Captured&) {
         Tensor y = x.clone();
         y.select(1, 2).mul_(3);
         return y;
       }},
      {"other.add_(1) if it may be written",
       [](const Tensor& x, const Tensor& other, const Captured&) {
         const Tensor before = other * 1.0;
         if (!other.requires_grad()) {
           Tensor(other).add_(1);
         }
         return x * before;
       }},
      {"x.index_select(1, {5, …, 0})",
       [](const Tensor& x, const Tensor&, const Captured&) {
         return x.index_select(1, at::arange(kWidth - 1, -1, -1, at::kLong));
       }},
      {"w = at::tensor({1, …, 6}); w.mul_(2); x * w",
       [](const Tensor& x, const Tensor&, const Captured&) {
         Tensor w = at::tensor({1.0F, 0.5F, 2.0F, 1.5F, 0.25F, 1.0F});
         w.mul_(2);
         return x * w;
       }},
      {"w = torch::tensor(a vector); w[1] *= 2; x + w",
       [](const Tensor& x, const Tensor&, const Captured&) {
         const Tensor w = torch::tensor(std::vector<float>{1, 2, 3, 4, 5, 6});
         w[1] *= 2;
         return x + w;
       }},
      {"w = at::empty(6), filled through its pointer; w.add_(1); x * w",
       [](const Tensor& x, const Tensor&, const Captured&) {
         Tensor w = at::empty({kWidth});
         std::fill_n(w.data_ptr<float>(), kWidth, 0.5F);
         w.add_(1);
         return x * w;
       }},
      {"x.view_as(x).split(2, 1) joined again",
       [](const Tensor& x, const Tensor&, const Captured&) { return at::cat(x.split(2, 1), 1); }},
      {"x * scaled(other.detach())",
       [](const Tensor& x, const Tensor& other, const Captured&) { return x * scaled(other.detach()); }},
      {"pure(x)", [](const Tensor& x, const Tensor&, const Captured&) { return pure(x); }},
      {"other.requires_grad_(); x * other",
       [](const Tensor& x, const Tensor& other, const Captured&) {
         other.requires_grad_();
         return x * other;
       }},
      // what cannot be recorded, or throws
      {"x + number(x)", [](const Tensor& x, const Tensor&, const Captured&) { return x + number(x); }},
      {"tick(x); x",
       [](const Tensor& x, const Tensor&, const Captured&) {
         tick(x);
         return x;
       }},
      {"scaled(x)", [](const Tensor& x, const Tensor&, const Captured&) { return scaled(x); }},
      {"counted(x)", [](const Tensor& x, const Tensor&, const Captured&) { return counted(x); }},
      {"own_gradient(x)", [](const Tensor& x, const Tensor&, const Captured&) { return own_gradient(x); }},
      {"other.detach_(); x + other",
       [](const Tensor& x, const Tensor& other, const Captured&) {
         other.detach_();
         return x + other;
       }},
      {"y = x * 2; y.retain_grad()",
       [](const Tensor& x, const Tensor&, const Captured&) {
         Tensor y = x * 2;
         if (y.requires_grad()) {
           y.retain_grad();
         }
         return y;
       }},
      {"if x requires a gradient, x.retain_grad(); x * 1.5",
       [](const Tensor& x, const Tensor&, const Captured&) {
         if (x.requires_grad()) {
           x.retain_grad();
         }
         return x * 1.5;
       }},
      {"k = x.detach().requires_grad_(); x + k",
       [](const Tensor& x, const Tensor&, const Captured&) { return x + x.detach().requires_grad_(); }},
      {"w = at::empty(6).zero_(), then a write through its pointer; x + w",
       [](const Tensor& x, const Tensor&, const Captured&) {
         Tensor w = at::empty({kWidth}).zero_();
         w.data_ptr<float>()[1] = 7;
         return x + w;
       }},
      {"no_grad { x * 3 } + x",
       [](const Tensor& x, const Tensor&, const Captured&) {
         const Tensor constant = [&] {
           const at::NoGradGuard no_grad;
           return x * 3;
         }();
         return constant + x;
       }},
      {"x * at::from_blob(table).clone()",
       [](const Tensor& x, const Tensor&, const Captured& c) {
         return x * at::from_blob(const_cast<float*>(c.table.data()), {kWidth}).clone();
       }},
      {"x * at::from_blob(a copy of table).clone()",
       [](const Tensor& x, const Tensor&, const Captured& c) {
         std::vector<float> copy = c.table;
         return x * at::from_blob(copy.data(), {kWidth}).clone();
       }},
      {"x + x.sum().item() * 0.01",
       [](const Tensor& x, const Tensor&, const Captured&) { return x + x.detach().sum().item<double>() * 0.01; }},
      {"at::manual_seed(5); x * rand_like(x)",
       [](const Tensor& x, const Tensor&, const Captured&) {
         at::manual_seed(5);
         return x * at::rand_like(x);
       }},
      {"y = x * 1.5; y.register_hook(halve)", [](const Tensor& x, const Tensor&, const Captured&) { return with_hook(x); }},
      {"throw if n == 5",
       [](const Tensor& x, const Tensor&, const Captured&) {
         if (x.size(0) == 5) {
           throw std::runtime_error("five rows are too many");
         }
         return x * 1.0;
       }},
      {"y = at::empty({0}, x.options()); y.set_(x.detach()); y + x",
       [](const Tensor& x, const Tensor&, const Captured&) {
         Tensor y = at::empty({0}, x.options());
         y.set_(x.detach());
         return y + x;
       }},
  };
  return all;
}

}  // namespace

uint32_t recordable_operation_count() { return operation_count() - kNotRecordable; }
uint32_t operation_count() { return static_cast<uint32_t>(operations().size()); }
std::string operation_name(uint32_t operation) { return operations()[operation].name; }

at::Tensor apply_operation(uint32_t operation, const at::Tensor& x, const at::Tensor& other, const Captured& captured) {
  return operations()[operation].apply(x, other, captured);
}

}  // namespace sconce::clients
