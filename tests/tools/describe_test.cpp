#include "tools/sconce/values/describe.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/ATen.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>

namespace sconce::cli {
namespace {

c10::IValue stats(double mean, const std::string& label) {
  const auto type = c10::TupleType::createNamed(c10::QualifiedName("__torch__.___torch_mangle_3.model.Stats"),
                                                std::vector<std::string>{"mean", "label"},
                                                std::vector<c10::TypePtr>{c10::FloatType::get(), c10::StringType::get()});
  return c10::ivalue::Tuple::createNamed({mean, label}, type);
}

c10::EnumTypePtr color(const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  return c10::EnumType::create(c10::QualifiedName("__torch__.Color"), c10::IntType::get(),
                               {{"RED", c10::IValue(1)}, {"BLUE", c10::IValue(2)}}, unit);
}

TEST(Describe, ShowsTheFieldsOfNamedTuples) {
  EXPECT_EQ(describe(stats(0.5, "a")),
            "out: Stats(mean=..., label=...)\n"
            "  .mean: 0.5\n"
            "  .label: \"a\"\n");
  const Json json = to_json(stats(0.5, "a"));
  EXPECT_EQ(json["class"], "Stats");
  EXPECT_EQ(json["fields"], (Json{"mean", "label"}));
  EXPECT_EQ(json["elements"], (Json{0.5, "a"}));
}

TEST(Describe, EscapesTexts) {
  EXPECT_EQ(describe(c10::IValue("a\nb\"c")), "out: \"a\\nb\\\"c\"\n");
  c10::impl::GenericDict dict(c10::StringType::get(), c10::IntType::get());
  dict.insert("k\n", 1);
  EXPECT_EQ(describe(dict), "out: dict of 1\n  [\"k\\n\"]: 1\n");
}

TEST(Describe, NamesMembersOfEnumsAndDevices) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const c10::IValue red(c10::make_intrusive<c10::ivalue::EnumHolder>(color(unit), "RED", c10::IValue(1)));
  EXPECT_EQ(describe(red), "out: Color.RED\n");
  EXPECT_EQ(to_json(red), (Json{{"type", "enum"}, {"class", "Color"}, {"name", "RED"}, {"value", 1}}));
  EXPECT_EQ(to_json(c10::Device("cpu")), (Json{{"type", "device"}, {"value", "cpu"}}));
}

TEST(FitArguments, TakesATextForAMemberOfAnEnum) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const auto fitted = fit_value(c10::IValue("BLUE"), color(unit));
  ASSERT_TRUE(fitted.has_value());
  EXPECT_EQ(fitted->toEnumHolder()->value().toInt(), 2);
  EXPECT_FALSE(fit_value(c10::IValue("GREEN"), color(unit)).has_value());
}

}  // namespace
}  // namespace sconce::cli
