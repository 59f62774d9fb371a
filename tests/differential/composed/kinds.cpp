// Kinds of statements.
#include "tests/differential/composed/generator.h"

#include <ATen/ATen.h>

#include <array>

namespace sconce::testing::composed {
namespace {

constexpr std::array kBinary = {"A + B",
                                "A - B",
                                "A * B",
                                "torch.maximum(A, B)",
                                "torch.minimum(A, B)",
                                "torch.add(A, B, alpha=N)",
                                "torch.sub(A, B, alpha=N)",
                                "torch.where(A > B, A, B)",
                                "torch.where(A > N, A, N)",
                                "torch.matmul(A, B)",
                                "torch.lerp(A, B, 0.3)",
                                "torch.addcmul(A, B, A, value=0.5)",
                                "A.masked_fill(B > 0, N)",
                                "torch.atan2(A, B + 5)",
                                "A / (B * B + 0.5)",
                                "torch.hypot(A, B + 3)",
                                "A == B",
                                "A < B",
                                "A.expand_as(B)",
                                "A.view_as(B)",
                                "A.type_as(B)",
                                "torch.masked_fill(A, B > 0.2, A.mean())",
                                "torch.cat([A, B], 0)",
                                "torch.cat([A, B], -1)",
                                "torch.stack([A, B])",
                                "A @ B.t()",
                                "torch.clamp(A, min=B)",
                                "torch.linear(A, B)",
                                "torch.outer(A, B)",
                                "A.masked_select(B > 0)",
                                "torch.where(A > 0, A, B * 0.5)",
                                "torch.einsum(\"...i,...i->...\", [A, B])",
                                "torch.mse_loss(A, B)",
                                "torch.layer_norm(A, [A.size(-1)], B)",
                                "torch.rms_norm(A, [A.size(-1)], B)",
                                "torch.cdist(A, B)",
                                "A[B.argsort(0)]",
                                "torch.dot(A, B)",
                                "torch.mv(A, B)",
                                "A.gather(0, (B > 0).to(4))"};

constexpr std::array kUnary = {"A * N",
                               "A + N",
                               "N - A",
                               "A ** 2",
                               "torch.pow(A, N)",
                               "torch.tanh(A)",
                               "torch.sigmoid(A)",
                               "torch.relu(A)",
                               "torch.gelu(A)",
                               "torch.silu(A)",
                               "torch.sin(A)",
                               "torch.exp(torch.tanh(A))",
                               "torch.softmax(A, -1)",
                               "torch.log_softmax(A, 0)",
                               "torch.clamp(A, -0.5, N)",
                               "A.sum()",
                               "A.mean()",
                               "A.std()",
                               "A.norm()",
                               "A.max()",
                               "A.sort(-1)",
                               "A.topk(1)",
                               "A.max(0)",
                               "A.cumsum(0)",
                               "A.tril()",
                               "A.to(6)",
                               "A.to(7)",
                               "A.to(4)",
                               "A > 0",
                               "-A",
                               "A.abs()",
                               "torch.leaky_relu(A, N)",
                               "torch.dropout(A, 0.3, True)",
                               "torch.dropout(A, 0.3, False)",
                               "A.argmax(-1)",
                               "torch.logsumexp(A, [-1])",
                               "A.var(0)",
                               "A.detach()",
                               "A.double()",
                               "A.masked_fill(A > 0, A.mean())",
                               "torch.zeros_like(A)",
                               "A.new_ones([2])",
                               "A * A.mean()",
                               "A / A.norm()",
                               "(A > 0).to(7) * A",
                               "A.floor() * A",
                               "torch.rand_like(A) * A",
                               "A.float()",
                               "A.prod(0)",
                               "A.amax()",
                               "A.argsort(0)",
                               "torch.softplus(A)",
                               "torch.hardtanh(A)",
                               "A.contiguous()",
                               "A * (A > 0)",
                               "A.matmul(A.transpose(-1, -2))",
                               "torch.bernoulli(torch.sigmoid(A))",
                               "A.median()",
                               "torch.log1p(A.abs())",
                               "A.logsumexp(0)"};

constexpr std::array kWrites = {"W.add_(B)",
                                "W.mul_(B)",
                                "W.sub_(B, alpha=0.5)",
                                "W.copy_(B)",
                                "W.fill_(N)",
                                "W.zero_()",
                                "W.tanh_()",
                                "W.relu_()",
                                "W.clamp_(-1.0, 1.0)",
                                "W.masked_fill_(W > 0, N)",
                                "W.sigmoid_()",
                                "W.mul_(N)",
                                "W.add_(N)",
                                "W.index_fill_(0, torch.zeros([1], dtype=4), 0.5)",
                                "W.addcmul_(W, B)",
                                "W.t_()",
                                "W.unsqueeze_(0)",
                                "W.squeeze_()",
                                "W.sin_()",
                                "W.lerp_(B, 0.25)",
                                "W.exp_()",
                                "W.neg_()",
                                "W.masked_fill_(W > 0.1, B.mean())",
                                "W.div_(B * B + 1)",
                                "W.floor_()",
                                "W.normal_()",
                                "W.uniform_()",
                                "W.exponential_()",
                                "W.random_(5)",
                                "W.requires_grad_(False)",
                                "W.detach_()",
                                "W.transpose_(0, -1)",
                                "W.index_put_([torch.zeros([1], dtype=4)], B.mean())",
                                "W.cumsum_(0)",
                                "W.softmax(0)"};

constexpr std::array kPlaces = {"V[0]",
                                "V[-1]",
                                "V[:, 0]",
                                "V[1:]",
                                "V[..., :1]",
                                "V.t()",
                                "V.view([-1])",
                                "V.select(-1, 0)",
                                "V.narrow(0, 0, 1)",
                                "V.expand_as(V)",
                                "V.transpose(0, -1)",
                                "V.unsqueeze(0)",
                                "V.diagonal()",
                                "V.detach()",
                                "V.unbind(0)[0]",
                                "V.chunk(2, 0)[0]",
                                "V.squeeze()",
                                "V.reshape([-1])",
                                "V.contiguous()",
                                "V.alias()"};

constexpr std::array kAssignments = {"W += B",
                                     "W *= B",
                                     "W -= N",
                                     "W /= 2",
                                     "W[0] = N",
                                     "W[0] = B",
                                     "W[:, 0] = N",
                                     "W[W > 0] = N",
                                     "W[..., -1] += B",
                                     "W[1:] = B",
                                     "W[torch.zeros([1], dtype=4)] = N"};

constexpr std::array kNumbers = {"V.size(0)",
                                 "V.size(-1)",
                                 "V.numel()",
                                 "V.dim()",
                                 "len(V)",
                                 "int(V.sum().item())",
                                 "float(V.mean().item())",
                                 "float(V.sum())",
                                 "int(V.argmax())",
                                 "V.size(0) * 2 - 1",
                                 "K + 1",
                                 "K * 2",
                                 "K // 2",
                                 "K % 3",
                                 "float(K) * 0.5",
                                 "min(K, 3)",
                                 "max(K, 2)",
                                 "V.shape[0]",
                                 "K - 1",
                                 "float(V.max().item()) * 0.25",
                                 "V.stride(0)",
                                 "bool((V > 0).any())",
                                 "K > 1",
                                 "float(V.norm().item()) + 1",
                                 "V.is_contiguous()",
                                 "V.requires_grad",
                                 "V.shape",
                                 "V.size()",
                                 "abs(K)",
                                 "V.tolist()",
                                 "round(float(V.mean()))",
                                 "K == 2",
                                 "V.storage_offset()",
                                 "int(V.any())"};

constexpr std::array kLists = {"[A, B]",
                               "[A, A, B]",
                               "A.chunk(2, -1)",
                               "A.split(1, 0)",
                               "A.split(2, -1)",
                               "A.unbind(0)",
                               "A.tensor_split(2, 0)",
                               "torch.broadcast_tensors([A, B])",
                               "torch.meshgrid([A.reshape([-1]), B.reshape([-1])])"};

constexpr std::array kOfLists = {"torch.cat(L, 0)",
                                 "torch.cat(L, -1)",
                                 "torch.stack(L)",
                                 "L[0] * L[-1]",
                                 "L[0]",
                                 "L[len(L) - 1]",
                                 "torch.stack(L, -1)",
                                 "L.pop()",
                                 "L.append(A)",
                                 "L.append(L[0] * 2)",
                                 "L.reverse()",
                                 "L.extend([A])",
                                 "torch.stack(L).sum(0)",
                                 "L[1:]",
                                 "L[0] + L[-1]",
                                 "L.insert(0, A)",
                                 "L + L",
                                 "L.copy()",
                                 "len(L)",
                                 "L.clear()"};

template <size_t size>
std::string choose(const std::array<const char*, size>& all, size_t at) {
  return all[at % size];
}

}  // namespace

void Generator::add_template(const Template& form) {
  attempt([&] {
    const auto expression = filled(form);
    return expression && add(*expression);
  });
}

void Generator::add_free() {
  const bool is_binary = chance(50);
  std::string expression = is_binary ? choose(kBinary, pick(kBinary.size())) : choose(kUnary, pick(kUnary.size()));
  expression = with_name_replaced(expression, "A", chance(85) ? any_real() : any_tensor());
  expression = with_name_replaced(expression, "B", chance(80) ? any_real() : any_tensor());
  add(with_name_replaced(expression, "N", any_number()));
}

void Generator::add_view() {
  add(chance(70) ? view_of(any_real()) : with_name_replaced(choose(kPlaces, pick(kPlaces.size())), "V", any_tensor()));
}

void Generator::add_write() {
  attempt([&] { return try_write(); });
}

bool Generator::try_write() {
  std::string target = chance(80) ? any_real() : any_tensor();
  if (chance(50)) {
    const std::string copy = any_of<std::string>({".clone()", " * 1", " + 0.5", ".contiguous()"});
    target = add(target + copy).value_or(target);
  }
  if (chance(50)) {
    target = add(with_name_replaced(choose(kPlaces, pick(kPlaces.size())), "V", target)).value_or(target);
  }
  const bool assigns = chance(30);
  std::string text = assigns ? choose(kAssignments, pick(kAssignments.size())) : choose(kWrites, pick(kWrites.size()));
  text = with_name_replaced(text, "W", target);
  text = with_name_replaced(text, "B", any_real());
  text = with_name_replaced(text, "N", any_number());
  return assigns ? add(Lines{{text}}, {}) : add(text).has_value();
}

void Generator::add_number() {
  std::string text = with_name_replaced(choose(kNumbers, pick(kNumbers.size())), "V", any_tensor());
  add(with_name_replaced(text, "K", small_int(0, 6)));
}

void Generator::add_list() {
  const auto any = [](const c10::IValue&) { return true; };
  const auto list = any_where("List[Tensor]", any);
  std::string text = list && chance(60) ? choose(kOfLists, pick(kOfLists.size())) : choose(kLists, pick(kLists.size()));
  text = with_name_replaced(text, "L", list.value_or("?"));
  text = with_name_replaced(text, "A", any_real());
  add(with_name_replaced(text, "B", any_real()));
}

// A number beside the loss. Slopes may be infinite; autograd does not visit what is detached.
void Generator::add_metric() {
  const std::string v = any_real();
  add(with_name_replaced(
      any_of<std::string>(
          {"torch.sqrt(V - V).detach()", "(torch.softmax(V, -1) * torch.log(torch.softmax(V, -1))).sum().detach()",
           "torch.log((V * 0).exp()).detach()", "torch.sqrt(torch.relu(V)).detach()", "(V.argmax(-1) == 0).to(7).mean()",
           "torch.sqrt(V * 0)", "(V * 0).norm().detach()", "(V > 0).sum()", "(V / (V.abs() + 1e-3)).mean().detach()"}),
      "V", v));
}

void Generator::add_optional() {
  std::vector<std::string> names;
  for (const Variable& variable : variables_) {
    if (variable.type == "Optional[Tensor]") {
      names.push_back(variable.name);
    }
  }
  if (names.empty()) {
    return;
  }
  const std::string name = names[pick(names.size())];
  const std::string a = any_real();
  const std::string result = new_name('v');
  const std::string used =
      with_name_replaced(with_name_replaced(any_of<std::string>({"A + O", "A * O", "O * 2", "torch.tanh(O)", "A * O.sum()",
                                                                 "torch.where(A > 0, A, O.mean())"}),
                                            "A", a),
                         "O", name);
  const Line present = {result + " = " + used};
  const Line absent = {result + " = " + a + any_of<std::string>({"", " * 2", ".sum()"})};
  const bool asks_absent = chance(50);
  add(Lines{{"if " + name + (asks_absent ? " is None:" : " is not None:"), {asks_absent ? absent : present}},
            {"else:", {asks_absent ? present : absent}}},
      {result});
}

void Generator::add_statement() {
  const size_t kind = pick(100);
  if (kind < 42) {
    add_template(templates()[pick(templates().size())]);
  } else if (kind < 58) {
    add_free();
  } else if (kind < 64) {
    add_view();
  } else if (kind < 73) {
    add_write();
  } else if (kind < 79) {
    add_number();
  } else if (kind < 84) {
    add_list();
  } else if (kind < 87) {
    add_metric();
  } else if (kind < 92) {
    add_optional();
  } else if (depth_ < 2) {
    kind < 96 ? add_if() : add_loop();
  }
}

}  // namespace sconce::testing::composed
