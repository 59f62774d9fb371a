#include "tests/clients/client_script.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace sconce::clients {
namespace {

// Bodies of `forward(self, x)`, for x: [n, 6].
constexpr std::array kModels = {
    "    return torch.tanh(torch.linear(x, self.w, self.b)) * self.scale\n",
    "    h = torch.batch_norm(torch.linear(x, self.w), self.b, self.b, self.mean, self.var, self.training, 0.1, 1e-5, "
    "True)\n"
    "    return torch.relu(h) + torch.linear(x, self.v)\n",
    "    self.count = self.count + 1\n"
    "    return torch.linear(x, self.w, self.b) * self.scale + self.count\n",
    "    h = torch.zeros_like(x)\n"
    "    for i in range(4):\n"
    "        if i % 2 == 0:\n"
    "            h = torch.tanh(torch.linear(x, self.w) + torch.mm(h, self.v))\n"
    "        else:\n"
    "            h = h * torch.sigmoid(h + self.b)\n"
    "    return h\n",
    "    return torch.linear(torch.dropout(x, 0.25, self.training), self.w, self.b) - self.mean\n",
    "    h = torch.mm(x, self.w)\n"
    "    h[:, 0] = 1.0\n"
    "    h.add_(self.b)\n"
    "    self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\n"
    "    return h * torch.sigmoid(torch.linear(x, self.v))\n",
    "    assert self.scale < 2.0, 'the scale is too large'\n"
    "    y = torch.linear(x, self.w, self.b).transpose(0, 1).contiguous().transpose(0, 1)\n"
    "    return torch.layer_norm(y, [6], self.b, self.mean) * self.scale\n",
    // Those below read sizes.
    "    n, f = x.shape\n"
    "    h = torch.linear(x, self.w, self.b).view(n, 2, -1).transpose(1, 2).reshape(x.shape)\n"
    "    if n > 4:\n"
    "        h = h * 2\n"
    "    return h / max(n, 3) + (n - f) * self.scale\n",
    "    k = x.size(0) // 2\n"
    "    h = torch.cat([torch.mm(x[k:], self.w), torch.mm(x[:k], self.v)])\n"
    "    mask = torch.ones(x.size(0), x.size(0)).tril()\n"
    "    return torch.mm(mask, h) * (1.0 / (x.numel() + 1)) + torch.arange(x.size(0) * 2)[::2].unsqueeze(1)\n",
    "    s = x.size()[1:] + [x.size(0)]\n"
    "    h = torch.mm(x, self.w).t().reshape(s).t()\n"
    "    rows: List[Tensor] = []\n"
    "    for i in range(min(x.size(0), 3)):\n"
    "        rows.append(h[i] * float(i + x.size(0)) ** 0.5)\n"
    "    if len(rows) > 0:\n"
    "        h = h + torch.stack(rows).sum(0)\n"
    "    self.count = self.count + x.size(0) % 3\n"
    "    return torch.softmax(torch.mm(h, self.v) + self.b, 1) * self.scale\n",
    "    h = torch.linear(x, self.w, self.b).clone()\n"
    "    h[x.size(0) // 3:] += self.mean\n"
    "    q = h.view(1, x.size(0), 2, 3).permute(0, 2, 1, 3)\n"
    "    h = torch.scaled_dot_product_attention(q, q, q).permute(0, 2, 1, 3).reshape(x.size(0), 6)\n"
    "    a, b = torch.linear(h, self.v).chunk(2, 1)\n"
    "    return torch.cat([a * torch.sigmoid(b), b], 1)\n",
};

// Returns the statements of a body, each with the lines that are nested in it.
std::vector<std::string> statements_of(std::string_view body) {
  std::vector<std::string> statements;
  while (!body.empty()) {
    const std::string_view line = body.substr(0, body.find('\n') + 1);
    const bool is_nested = line.starts_with("     ") || line.starts_with("    else:");
    if (is_nested && !statements.empty()) {
      statements.back() += line;
    } else {
      statements.emplace_back(line);
    }
    body.remove_prefix(line.size());
  }
  return statements;
}

// Returns whether the statement reads what has been computed for the last time, into variables of its own.
bool is_kept_in_others(const std::string& statement) {
  return statement.starts_with("    a, b = ") || statement.starts_with("    q = ");
}

// The lines of an effect, and the values that the method returns for it.
struct Lines {
  std::vector<std::string> lines;
  std::vector<std::string> returned;
};

// `unit`: the variable that holds what has been computed so far, [n, 6]. `given` is the argument itself.
Lines lines_of(const Effect& effect, const std::string& unit, const std::string& suffix) {
  constexpr std::array kMarked = {"given", "given", "given", "", "", "", "self.mean", "self.w"};
  const uint32_t form = effect.form;
  const std::string name = kMarked[effect.target % kMarked.size()];
  const std::string target = name.empty() ? unit : name;
  const std::string operand = effect.target % 3 == 0 ? "given" : unit;
  const auto flag = [&](uint32_t bit) { return std::string((form >> bit) % 2 == 0 ? "True" : "False"); };
  const std::string t = "t" + suffix;
  switch (static_cast<EffectKind>(effect.kind % kEffectKinds)) {
    case EffectKind::kMark: return {{target + ".requires_grad_(True)"}, {}};
    case EffectKind::kUnmark: return {{target + ".requires_grad_(False)"}, {}};
    case EffectKind::kMarkForAWhile:
      return {
          {"self.mean.requires_grad_(True)", unit + " = " + unit + " * (self.mean + 1)", "self.mean.requires_grad_(False)"},
          {}};
    case EffectKind::kDetach: return {{target + ".detach_()"}, {}};
    case EffectKind::kRetain: return {{target + ".retain_grad()"}, {}};
    case EffectKind::kLeaf: {
      Lines leaf = {
          {t + " = " + unit + ".detach()", t + ".requires_grad_(True)", unit + " = " + unit + " + " + t + " * 0.5"}, {}};
      if (form % 2 == 0) {
        leaf.returned.push_back(t);
      }
      return leaf;
    }
    case EffectKind::kReturn: return {{t + " = " + target}, {t}};
    case EffectKind::kInnerGradient: {
      constexpr std::array kInputs = {"given", "given", "self.w", "self.w", "t"};
      const std::string input = kInputs[effect.target % kInputs.size()];
      const bool is_strain = input == "t";
      std::vector<std::string> lines;
      if (is_strain) {
        lines = {t + " = torch.zeros(6, 6)", t + ".requires_grad_(True)",
                 unit + " = torch.matmul(" + unit + ", " + t + " + torch.eye(6))"};
      }
      lines.push_back("g" + suffix + " = torch.autograd.grad([" + unit + ".pow(2).sum()], [" + (is_strain ? t : input) +
                      "], retain_graph=" + flag(1) + ", create_graph=" + flag(2) + ", allow_unused=True)[0]");
      lines.push_back("if g" + suffix + " is not None:");
      lines.push_back("    " + unit + " = " + unit + " + g" + suffix + ".sum() * 0.01");
      return {lines, {}};
    }
    case EffectKind::kInnerBackward: return {{unit + ".pow(2).mean().backward(retain_graph=" + flag(1) + ")"}, {}};
    case EffectKind::kWithoutGradients: {
      constexpr std::array kWrites = {"t = U * 2", "self.mean.mul_(0.5).add_(U.sum(0) * 0.01)", "t = U.mul_(0.5)"};
      std::string write = kWrites[effect.target % kWrites.size()];
      for (size_t at = write.find('U'); at != std::string::npos; at = write.find('U', at + unit.size())) {
        write.replace(at, 1, unit);
      }
      const bool is_temporary = write[0] == 't';
      return {{"torch.set_grad_enabled(False)", is_temporary ? t + write.substr(1) : write, "torch.set_grad_enabled(True)",
               unit + " = " + unit + " + " + (is_temporary ? t : "self.mean") + " * 0.1"},
              {}};
    }
    case EffectKind::kWriteData: return {{"self.w.data.mul_(0.99)"}, {}};
    case EffectKind::kWriteBuffer:
      return form % 2 == 0 ? Lines{{"self.var.mul_(0.9).add_(0.1)", unit + " = " + unit + " * self.var"}, {}}
                           : Lines{{"self.mean.add_(0.125)", unit + " = " + unit + " - self.mean * 0.1"}, {}};
    case EffectKind::kWarn: return {{"torch.warn('careful')"}, {}};
    case EffectKind::kTick: return {{"clients.tick(" + target + ")"}, {}};
    case EffectKind::kScaled: return {{unit + " = " + unit + " + clients.scaled(" + operand + ") * 0.1"}, {}};
    case EffectKind::kCounted:
      return form % 2 == 0 ? Lines{{unit + " = clients.counted(" + unit + ")"}, {}}
                           : Lines{{unit + " = " + unit + " + clients.counted(" + operand + ".detach())"}, {}};
    case EffectKind::kPure: return {{unit + " = clients.pure(" + unit + ")"}, {}};
    case EffectKind::kNumber: return {{unit + " = " + unit + " * (1.0 + clients.number(" + operand + ") * 0.1)"}, {}};
    case EffectKind::kOwnGradient: return {{unit + " = " + unit + " + clients.own_gradient(" + operand + ") * 0.1"}, {}};
    case EffectKind::kClass: return {{unit + " = " + unit + " + self.counter.next() * 0.01"}, {}};
    case EffectKind::kScope:
      return {{"r" + suffix + " = profiler._record_function_enter_new('part of the model')",
               unit + " = torch.tanh(" + unit + ")", "profiler._record_function_exit(r" + suffix + ")"},
              {}};
  }
  return {};
}

// Puts lines into the body of a loop or of a branch, by the effect's form.
std::string indented(const Lines& effect, uint32_t form, const std::string& suffix) {
  std::string text;
  std::string indent = "    ";
  if (effect.returned.empty() && form % 8 == 3) {
    text = "    for i" + suffix + " in range(2):\n";
    indent += "    ";
  } else if (effect.returned.empty() && form % 8 == 5) {
    text = "    if self.scale > 1.0:\n";
    indent += "    ";
  }
  for (const std::string& line : effect.lines) {
    text += indent + line + "\n";
  }
  return text;
}

}  // namespace

std::string script_of(const ClientProgram& program) {
  constexpr std::array kHeads = {"def forward(self, x):\n    given = x\n",
                                 "def forward(self, xs: List[Tensor]):\n    given = xs[0]\n    x = given\n",
                                 "def forward(self, xs: Dict[str, Tensor]):\n    given = xs['x']\n    x = given\n"};
  std::vector<std::string> statements = statements_of(kModels[program.model % kModels.size()]);
  constexpr std::string_view kReturn = "    return ";
  statements.back().replace(0, kReturn.size(), "    y = ");
  std::string text = kHeads[static_cast<size_t>(program.argument)];
  std::string unit = "x";
  std::string returned = "y";
  std::vector<bool> is_written(program.effects.size(), false);
  for (size_t place = 0; place <= statements.size(); ++place) {
    // What an effect computes is used: as LibTorch's optimizer does, sconce removes what is not, autograd.grad among it.
    const bool has_unit = place == 0 || !is_kept_in_others(statements[place - 1]);
    for (size_t i = 0; i < program.effects.size() && has_unit; ++i) {
      const Effect& effect = program.effects[i];
      const size_t wanted = effect.place % (statements.size() + 2);  // the end is frequent
      if (is_written[i] || std::min(wanted, statements.size()) > place) {
        continue;
      }
      is_written[i] = true;
      const Lines lines = lines_of(effect, unit, std::to_string(i));
      text += indented(lines, effect.form, std::to_string(i));
      for (const std::string& value : lines.returned) {
        returned += ", " + value;
      }
    }
    if (place == statements.size()) {
      break;
    }
    text += statements[place];
    if (statements[place].starts_with("    h = ")) {
      unit = "h";
    } else if (statements[place].starts_with("    y = ")) {
      unit = "y";
    }
  }
  return text + "    return " + returned + "\n";
}

}  // namespace sconce::clients
