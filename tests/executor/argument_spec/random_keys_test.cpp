// Equal words, equal facts: whatever changes between two calls without changing the words, the facts that a specialized plan
// assumes hold in both.
#include "tests/executor/argument_spec/known_calls.h"
#include "tests/support/graphs.h"

#include <c10/core/InferenceMode.h>

#include <random>

namespace sconce {
namespace {

using testing::Calls;
using testing::graph_of_method;
using Values = std::vector<c10::IValue>;

class RandomCalls {
 public:
  explicit RandomCalls(uint64_t seed) : random_(seed) {
    inner_ = testing::module_of("def forward(self, x):\n    return x\n",
                                {{"w", at::ones({2, 3})}, {"p", at::ones({3}).requires_grad_(true)}, {"eps", 0.5}});
    outer_.register_module("inner", inner_);
    outer_.register_attribute("training", c10::BoolType::get(), true);
    outer_.register_buffer("cache", at::ones({2, 3}));
    outer_.register_buffer("log", at::ones({2}));
    outer_.register_attribute("maybe", c10::OptionalType::ofTensor(), c10::IValue());
    outer_.register_attribute("steps", c10::OptionalType::create(c10::IntType::get()), c10::IValue());
    outer_.register_attribute("history", c10::ListType::ofTensors(), c10::List<at::Tensor>());
    outer_.register_attribute("name", c10::StringType::get(), std::string("a"));
    outer_.register_attribute("depth", c10::IntType::get(), 1);
    outer_.register_attribute("count", c10::IntType::get(), 0);
    outer_.define(R"(
def forward(self, x: Tensor, y: Optional[Tensor], pair: Tuple[Tensor, Optional[Tensor]], table: Dict[str, Tensor],
            many: List[Tensor], numbers: List[int], any: Any):
    self.count += 1
    self.log = x
    total = [x, self.cache, self.inner.w, self.inner.p, self.log]
    if self.training and self.inner.eps > 0 and self.name == "a" and self.depth > 0:
        total.append(x)
    maybe = self.maybe
    if maybe is not None and self.steps is not None:
        total.append(maybe)
    x.add_(len(self.history))
    return total, y, pair, table, many, numbers, any
)");
  }

  std::unique_ptr<Graph> graph() const { return graph_of_method(outer_); }

  Values next() {
    for (int changes = pick(3); changes > 0; --changes) {
      change_an_attribute();
    }
    const at::Tensor x = chance() ? tensor() : outer_.attr("cache").toTensor().detach();
    c10::Dict<std::string, at::Tensor> table;
    for (int i = pick(3); i > 0; --i) {
      table.insert(std::string(1, static_cast<char>('a' + pick(4))), tensor());
    }
    c10::List<at::Tensor> many;
    for (int i = pick(3); i > 0; --i) {
      many.push_back(tensor());
    }
    c10::List<int64_t> numbers;
    for (int i = pick(3); i > 0; --i) {
      numbers.push_back(pick(100));
    }
    return {outer_._ivalue(),
            x,
            chance() ? c10::IValue() : c10::IValue(tensor()),
            c10::ivalue::Tuple::create(tensor(), chance() ? c10::IValue() : c10::IValue(x)),
            table,
            many,
            numbers,
            any()};
  }

 private:
  int pick(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  bool chance() { return pick(2) == 0; }

  at::Tensor tensor() {
    const c10::InferenceMode mode(pick(8) == 0);
    std::vector<int64_t> sizes;
    for (int i = pick(3); i > 0; --i) {
      sizes.push_back(pick(4));
    }
    const at::Tensor made = at::ones(sizes, chance() ? at::kFloat : at::kDouble);
    switch (pick(12)) {
      case 0: return made.to_sparse();
      case 1: return at::Tensor();
      case 2: return made.dim() == 2 ? made.t() : made;
      default: return made.is_inference() ? made : made.set_requires_grad(pick(8) == 0);
    }
  }

  c10::IValue any() {
    switch (pick(5)) {
      case 0: return {};
      case 1: return pick(3);
      case 2: return std::string("text");
      case 3: return c10::ivalue::Tuple::create(tensor(), pick(9));
      default: return tensor();
    }
  }

  void change_an_attribute() {
    const auto outer = outer_._ivalue();
    const auto inner = inner_._ivalue();
    switch (pick(14)) {
      case 0: outer_.train(chance()); break;
      case 1: inner->setAttr("eps", static_cast<double>(pick(2))); break;
      case 2: outer->setAttr("name", std::string(static_cast<size_t>(pick(3)), 'a')); break;
      case 3: outer->setAttr("depth", pick(2)); break;
      case 4: outer->setAttr("count", pick(100)); break;
      case 5: outer->setAttr("cache", at::ones({pick(3) + 1, 3})); break;
      case 6: outer->setAttr("maybe", chance() ? c10::IValue() : c10::IValue(tensor())); break;
      case 7: outer->setAttr("steps", chance() ? c10::IValue() : c10::IValue(pick(3))); break;
      case 8: outer_.attr("history").toTensorList().push_back(tensor()); break;
      case 9: outer->setAttr("history", c10::List<at::Tensor>()); break;
      case 10: outer->setAttr("log", tensor()); break;
      case 11: inner->setAttr("w", tensor()); break;
      case 12: inner_.attr("p").toTensor().set_data(at::ones({pick(4) + 1})); break;
      default: inner_.attr("p").toTensor().requires_grad_(chance()); break;
    }
  }

  std::mt19937_64 random_;
  torch::jit::Module inner_;
  torch::jit::Module outer_{"Outer"};
};

TEST(Keys, EqualWordsHaveEqualFactsThatHold) {
  size_t repeated = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomCalls random(seed);
    Calls calls(random.graph());
    for (int call = 0; call < 60 && !::testing::Test::HasFailure(); ++call) {
      const c10::AutoGradMode mode(call % 3 != 0);
      const Values arguments = random.next();
      calls.add(arguments);
      // The same key, where possible, with other sizes and values.
      Values others = arguments;
      for (c10::IValue& other : others) {
        if (other.isTensor() && other.toTensor().defined() && !other.toTensor().is_sparse() &&
            !other.toTensor().is_inference()) {
          std::vector<int64_t> sizes = other.toTensor().sizes().vec();
          std::ranges::transform(sizes, sizes.begin(), [](int64_t size) { return size > 1 ? size + 3 : size; });
          other = at::zeros(sizes, other.toTensor().options()).set_requires_grad(other.toTensor().requires_grad());
        }
      }
      calls.add(others);
    }
    repeated += calls.repeated();
  }
  EXPECT_GT(repeated, 100U) << "of calls with the words of an earlier one";
}

}  // namespace
}  // namespace sconce
