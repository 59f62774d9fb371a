// How program_generator.h makes its programs: one class, its parts in files by theme.
#pragma once

#include "tests/differential/composed/program_generator.h"
#include "tests/differential/composed/templates.h"

#include <functional>
#include <map>
#include <optional>
#include <random>

namespace sconce::testing::composed {

struct Variable {
  std::string name;
  std::string type;
  std::vector<c10::IValue> values;  // by call
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed * 2654435761 + 1) { result_.seed = seed; }
  Program run();
  std::optional<Program> run_template(const Template& form);

 private:
  using Sizes = std::vector<int64_t>;
  using Predicate = std::function<bool(const c10::IValue&)>;

  // ---- chance ---------------------------------------------------------------------------------------------------------
  // std's distributions differ between libraries; seeds must not.
  size_t pick(size_t bound) { return random_() % bound; }
  bool chance(size_t percent) { return pick(100) < percent; }
  template <typename T>
  T any_of(std::initializer_list<T> all) {
    return std::data(all)[pick(all.size())];
  }

  // ---- statements, statements.cpp ---------------------------------------------------------------------------------------
  std::string new_name(char letter) { return letter + std::to_string(next_name_++); }
  const Variable* find(const std::string& name) const;
  // The parameters of a function whose body is the text.
  std::string parameters_of(const std::string& text, std::vector<const Variable*>& used) const;
  // Compiles and runs a function for every call. Returns the types and values of its results, or nothing if it raises.
  struct Results {
    std::vector<std::string> types;
    std::vector<std::vector<c10::IValue>> values;  // by result, then by call
  };
  std::optional<Results> evaluate(const std::string& body);
  // Adds `NAME = expression`, or several names for a tuple. Returns the first name, or nothing if it was rejected.
  std::optional<std::string> add(const std::string& expression, bool may_be_wild = false);
  // Takes back what `statement` added if it returns false.
  void attempt(const std::function<bool()>& statement);
  // Adds the lines, which define the names.
  bool add(const Lines& lines, const std::vector<std::string>& defined);

  // ---- variables ------------------------------------------------------------------------------------------------------
  std::vector<std::string> names_where(const std::string& type, const Predicate& every) const;
  // Late ones more often: programs get deeper so.
  std::optional<std::string> any_where(const std::string& type, const Predicate& every);
  std::string any_real();    // a tensor of float64
  std::string any_tensor();  // of any dtype
  std::string small_int(int64_t low, int64_t high);
  std::string any_number();

  // ---- operands, operands.cpp -------------------------------------------------------------------------------------------
  std::optional<std::vector<Sizes>> sizes_in_calls(const std::string& sizes);
  std::string operand(const Hole& hole, const std::string& n);
  std::optional<std::string> existing(const Hole& hole, const std::vector<Sizes>& wanted);
  std::optional<std::string> reshaped(const std::string& from, const std::string& sizes, const std::vector<Sizes>& wanted);
  std::string flattened(const std::string& from, const std::string& sizes);
  std::string in_range(std::string name, Hole::Kind kind);
  std::string view_of(const std::string& name);
  bool has_sizes(const std::string& name, const std::vector<Sizes>& wanted) const;
  std::optional<std::string> filled(const Template& form);

  // ---- kinds of statements, kinds.cpp -----------------------------------------------------------------------------------
  void add_statement();
  void add_template(const Template& form);
  void add_free();
  void add_view();
  void add_write();
  bool try_write();
  void add_number();
  void add_list();
  void add_metric();
  void add_optional();

  // ---- blocks, blocks.cpp -----------------------------------------------------------------------------------------------
  std::string condition();
  // Makes statements in a block of their own and returns its lines; `result` becomes one of its tensors.
  Lines block(size_t statements, std::string& result);
  void add_if();
  void add_loop();
  void add_guarded_mistake();
  bool try_guarded_mistake();
  std::string with_mistake(std::string expression);

  // ---- inputs, outputs and calls, calls.cpp -----------------------------------------------------------------------------
  void make_inputs();
  void choose_outputs();
  void choose_calls();
  void make_invalid(Call& call);

  std::mt19937_64 random_;
  Program result_;
  std::vector<Variable> variables_;
  Lines* lines_ = nullptr;
  int depth_ = 0;
  int next_name_ = 10;         // inputs have names of one digit
  int number_of_mistake_ = 7;  // the value of k0 in the call that raises
};

bool is_real(const c10::IValue& value);

}  // namespace sconce::testing::composed
