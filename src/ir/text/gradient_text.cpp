#include "ir/text/gradient_text.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace sconce {
namespace {

using Bits = std::vector<bool>;

std::string named(char kind, size_t number) { return kind + std::to_string(number); }

// ---- print

class GradientPrinter {
 public:
  explicit GradientPrinter(const GradientSignature& signature) : signature_(signature) {
    for (const GradientSignature::Output& output : signature.outputs) {
      dependences_.insert(dependences_.end(), output.reaches.begin(), output.reaches.end());
    }
  }

  std::string print() {
    for (const GradientSignature::Output& output : signature_.outputs) {
      clause("grad(" + named('y', output.position) + ") reaches " + inputs_at(output.reaches) +
             (output.otherwise ? " else " + inputs_at(*output.otherwise) : ""));
    }
    if (const Bits unreached = inputs_without_output(); std::ranges::find(unreached, true) != unreached.end()) {
      clause("nothing reaches " + inputs_at(unreached));
    }
    print_saved();
    std::string added;
    for (const size_t intermediate : signature_.differentiable_intermediates) {
      added += (added.empty() ? "" : ", ") + named('t', intermediate);
    }
    if (!added.empty()) {
      clause("double backward adds grad(" + added + ")");
    }
    return "{" + out_ + "}";
  }

 private:
  void clause(const std::string& text) { out_ += (out_.empty() ? "" : "; ") + text; }

  std::string inputs_at(const Bits& bits) const {
    std::string list;
    for (size_t i = 0; i < bits.size(); ++i) {
      if (bits[i]) {
        list += (list.empty() ? "" : ", ") + named('x', signature_.inputs[i]);
      }
    }
    return list.empty() ? "nothing" : list;
  }

  Bits inputs_without_output() const {
    Bits without(signature_.inputs.size(), true);
    for (size_t at = 0; at < dependences_.size(); ++at) {
      without[at % without.size()] = without[at % without.size()] && !dependences_[at];
    }
    return without;
  }

  void print_saved() {
    std::string list;
    const auto add = [&](const std::string& name) { list += (list.empty() ? "" : ", ") + name; };
    for (const GradientSignature::Saved& input : signature_.saved_inputs) {
      add(named('x', input.position) + paths(input));
    }
    for (const GradientSignature::Saved& output : signature_.saved_outputs) {
      add(named('y', output.position) + paths(output));
    }
    for (size_t i = 0; i < signature_.intermediates; ++i) {
      add(named('t', i));
    }
    if (!list.empty()) {
      clause("saves " + list);
    }
  }

  std::string paths(const GradientSignature::Saved& saved) const {
    if (saved.paths == dependences_) {
      return "";
    }
    std::string list;
    const auto inputs = static_cast<std::ptrdiff_t>(signature_.inputs.size());
    for (size_t i = 0; i < signature_.outputs.size(); ++i) {
      const auto begin = saved.paths.begin() + static_cast<std::ptrdiff_t>(i) * inputs;
      const Bits row(begin, begin + inputs);
      if (std::ranges::find(row, true) != row.end()) {
        list += (list.empty() ? "" : "; ") + named('y', signature_.outputs[i].position) + " to " + inputs_at(row);
      }
    }
    return " (" + list + ")";
  }

  const GradientSignature& signature_;
  Bits dependences_;  // a row per differentiable output
  std::string out_;
};

// ---- parse

// Bits of inputs and pairs are known when all clauses are read. Until then they are lists of positions.
class GradientParser {
 public:
  explicit GradientParser(Lexer& cursor) : cursor_(cursor) {}

  GradientSignature parse() {
    cursor_.expect("{");
    while (!cursor_.accept("}")) {
      parse_clause();
      if (!cursor_.peek("}")) {
        cursor_.expect(";");
      }
    }
    finish();
    return std::move(signature_);
  }

 private:
  using Positions = std::vector<size_t>;
  struct OutputText {
    Positions reaches;
    std::optional<Positions> otherwise;
  };
  struct Path {
    size_t output;  // a position
    Positions inputs;
  };
  using Paths = std::optional<std::vector<Path>>;  // null: those of the dependences

  void parse_clause() {
    if (cursor_.accept("grad")) {
      cursor_.expect("(");
      signature_.outputs.push_back({number('y'), {}, {}});
      cursor_.expect(")");
      cursor_.expect("reaches");
      OutputText& text = outputs_.emplace_back(OutputText{inputs(), {}});
      if (cursor_.accept("else")) {
        text.otherwise = inputs();
      }
    } else if (cursor_.accept("nothing")) {
      cursor_.expect("reaches");
      inputs();
    } else if (cursor_.accept("saves")) {
      do {
        parse_saved();
      } while (cursor_.accept(","));
    } else {
      cursor_.expect("double");
      cursor_.expect("backward");
      cursor_.expect("adds");
      cursor_.expect("grad");
      cursor_.expect("(");
      do {
        signature_.differentiable_intermediates.push_back(number('t'));
      } while (cursor_.accept(","));
      cursor_.expect(")");
    }
  }

  void parse_saved() {
    const size_t begin = cursor_.position();
    const char kind = cursor_.identifier("a saved value, like x0")[0];
    cursor_.rewind(begin);
    if (kind == 't') {
      if (number('t') != signature_.intermediates++) {
        cursor_.fail_at(begin, "intermediates are saved in their order, from t0 on");
      }
      return;
    }
    const bool is_input = kind == 'x';
    (is_input ? signature_.saved_inputs : signature_.saved_outputs).push_back({number(is_input ? 'x' : 'y'), {}});
    Paths& paths = (is_input ? input_paths_ : output_paths_).emplace_back();
    if (!cursor_.accept("(")) {
      return;
    }
    paths.emplace();
    while (!cursor_.accept(")")) {
      const size_t output = number('y');
      cursor_.expect("to");
      paths->push_back({output, inputs()});
      if (!cursor_.peek(")")) {
        cursor_.expect(";");
      }
    }
  }

  // Parses a position of one kind, like x12.
  size_t number(char kind) {
    const size_t begin = cursor_.position();
    const std::string_view name = cursor_.identifier("a value of the gradient, like x0");
    uint32_t value = 0;
    const auto result = std::from_chars(name.data() + 1, name.data() + name.size(), value);
    if (name.size() < 2 || name[0] != kind || result.ec != std::errc() || result.ptr != name.data() + name.size()) {
      cursor_.fail_at(begin, "expected " + named(kind, 0) + ", " + named(kind, 1) + " or the like");
    }
    return value;
  }

  // Parses a list of inputs, each of which is a differentiable input.
  Positions inputs() {
    Positions list;
    if (cursor_.accept("nothing")) {
      return list;
    }
    do {
      list.push_back(number('x'));
      auto& known = signature_.inputs;
      const auto at = std::ranges::lower_bound(known, list.back());
      if (at == known.end() || *at != list.back()) {
        known.insert(at, list.back());
      }
    } while (cursor_.accept(","));
    return list;
  }

  Bits bits(const Positions& positions) const {
    Bits bits(signature_.inputs.size());
    for (const size_t position : positions) {
      bits[static_cast<size_t>(std::ranges::lower_bound(signature_.inputs, position) - signature_.inputs.begin())] = true;
    }
    return bits;
  }

  void finish() {
    Bits dependences;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      GradientSignature::Output& output = signature_.outputs[i];
      output.reaches = bits(outputs_[i].reaches);
      if (outputs_[i].otherwise) {
        output.otherwise = bits(*outputs_[i].otherwise);
      }
      dependences.insert(dependences.end(), output.reaches.begin(), output.reaches.end());
    }
    for (size_t i = 0; i < input_paths_.size(); ++i) {
      signature_.saved_inputs[i].paths = input_paths_[i] ? table(*input_paths_[i]) : dependences;
    }
    for (size_t i = 0; i < output_paths_.size(); ++i) {
      signature_.saved_outputs[i].paths = output_paths_[i] ? table(*output_paths_[i]) : dependences;
    }
    for (const size_t intermediate : signature_.differentiable_intermediates) {
      if (intermediate >= signature_.intermediates) {
        cursor_.fail("double backward adds the gradient of " + named('t', intermediate) + ", which is not saved");
      }
    }
  }

  Bits table(const std::vector<Path>& paths) {
    Bits table(signature_.outputs.size() * signature_.inputs.size());
    for (const Path& path : paths) {
      const auto output =
          std::ranges::find_if(signature_.outputs, [&](const auto& each) { return each.position == path.output; });
      if (output == signature_.outputs.end()) {
        cursor_.fail("a path begins at " + named('y', path.output) + ", which brings no gradient");
      }
      const Bits row = bits(path.inputs);
      std::copy(
          row.begin(), row.end(),
          table.begin() + (output - signature_.outputs.begin()) * static_cast<std::ptrdiff_t>(signature_.inputs.size()));
    }
    return table;
  }

  Lexer& cursor_;
  GradientSignature signature_;
  std::vector<OutputText> outputs_;
  std::vector<Paths> input_paths_;
  std::vector<Paths> output_paths_;
};

}  // namespace

std::string print_gradient(const GradientSignature& signature) { return GradientPrinter(signature).print(); }

GradientSignature parse_gradient(Lexer& cursor) { return GradientParser(cursor).parse(); }

}  // namespace sconce
