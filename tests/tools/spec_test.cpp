#include "tools/sconce/values/spec.h"
#include "tools/sconce/report/errors.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sconce::cli {
namespace {

c10::IValue parsed(const std::string& spec) {
  at::Generator generator = at::detail::createCPUGenerator(7);
  return parse_spec(spec, generator);
}

std::string error_of(const std::string& spec) {
  try {
    parsed(spec);
  } catch (const UserError& failure) {
    return failure.what();
  }
  return "no error";
}

TEST(Spec, MakesTensorsOfDtypeAndShape) {
  const at::Tensor image = parsed("float32[1,3,2,2]").toTensor();
  EXPECT_EQ(image.scalar_type(), c10::kFloat);
  EXPECT_EQ(image.sizes(), at::IntArrayRef({1, 3, 2, 2}));
  EXPECT_EQ(parsed("float64[]").toTensor().dim(), 0);
  EXPECT_EQ(parsed("bfloat16[0,4]").toTensor().numel(), 0);
  EXPECT_EQ(parsed(" complex64 [ 2 , 2 ] ").toTensor().scalar_type(), c10::kComplexFloat);
  EXPECT_EQ(parsed("bool[3]").toTensor().scalar_type(), c10::kBool);
}

TEST(Spec, FillsTensorsAsAsked) {
  EXPECT_TRUE(parsed("float32[4]=zeros").toTensor().equal(at::zeros({4})));
  EXPECT_TRUE(parsed("int64[2,2]=ones").toTensor().equal(at::ones({2, 2}, at::kLong)));
  EXPECT_TRUE(parsed("float32[2]=-2.5").toTensor().equal(at::full({2}, -2.5)));
  EXPECT_TRUE(parsed("int64[2,2]=arange").toTensor().equal(at::arange(4, at::kLong).view({2, 2})));
  EXPECT_TRUE(parsed("float32[2]=nan").toTensor().isnan().all().item<bool>());
}

TEST(Spec, MakesEveryDtypeThatLibTorchCanConvertTo) {
  for (const char* name : {"float16", "float8_e4m3fn", "float8_e5m2", "complex32", "uint16", "uint32", "uint64", "int16"}) {
    for (const char* filling : {"", "=ones", "=arange", "=1", "=0..3"}) {
      const std::string spec = std::string(name) + "[3]" + filling;
      ASSERT_EQ(error_of(spec), "no error") << spec;
      EXPECT_EQ(parsed(spec).toTensor().numel(), 3) << spec;
    }
  }
  EXPECT_EQ(parsed("uint16[2]=65535").toTensor().to(c10::kLong).max().item<int64_t>(), 65535);
  EXPECT_EQ(parsed("uint8[1000]=0..256").toTensor().max().item<int64_t>(), 255);
  EXPECT_TRUE(parsed("bool[2]=true").toTensor().all().item<bool>());
}

TEST(Spec, RefusesValuesThatTheDtypeDoesNotHave) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"int8[2]=1000", "at character 9: int8 holds -128 to 127"},
      {"uint8[2]=-1", "at character 10: uint8 holds 0 to 255"},
      {"uint8[2]=0..257", "at character 13: uint8 holds 0 to 255"},
      {"int8[2]=-129..5", "at character 9: int8 holds -128 to 127"},
      {"int8[300]=arange", "at character 11: int8 holds"},
      {"bool[2]=2", "at character 9: bool holds 0 to 1"},
      {"int32[2]=1.5", "at character 10: int32 holds whole numbers"},
      {"int32[2]=nan", "int32 holds whole numbers"},
      {"float16[2]=70000", "at character 12: float16 holds numbers up to 65504"},
      {"float32[2]=0..1e39", "at character 15: float32 holds numbers up to"},
      {"float64[2]=0..inf", "at character 15: a range ends at finite numbers"},
      {"qint8[2]", "quantized tensors have a scale"},
      {"int4[2]", "give it with --inputs FILE"},
  };
  for (const auto& [spec, expected] : cases) {
    EXPECT_THAT(error_of(spec), ::testing::HasSubstr(expected)) << spec;
    EXPECT_THAT(error_of(spec), ::testing::StartsWith("bad SPEC '")) << spec;
  }
}

TEST(Spec, MemoryThatIsNotThereIsNamedWithItsSize) {
  EXPECT_THAT(error_of("float32[1000000,1000000,1000]"),
              ::testing::ContainsRegex(": not enough memory: it needs [0-9]+ GiB$"));
}

TEST(Spec, RangeLeavesOutItsEnd) {
  const at::Tensor ids = parsed("int64[1,1000]=0..3").toTensor();
  EXPECT_EQ(ids.min().item<int64_t>(), 0);
  EXPECT_EQ(ids.max().item<int64_t>(), 2);
  const at::Tensor negative = parsed("int32[100]=-5..-3").toTensor();
  EXPECT_GE(negative.min().item<int>(), -5);
  EXPECT_LT(negative.max().item<int>(), -3);
  const at::Tensor real = parsed("float32[1000]=0.5..0.75").toTensor();
  EXPECT_GE(real.min().item<double>(), 0.5);
  EXPECT_LE(real.max().item<double>(), 0.75);
}

TEST(Spec, SameSeedGivesSameNumbersAndLeavesTheDefaultGeneratorAlone) {
  at::manual_seed(3);
  const at::Tensor before = at::rand({2});
  at::manual_seed(3);
  const at::Tensor first = parsed("float32[8]").toTensor();
  EXPECT_TRUE(first.equal(parsed("float32[8]").toTensor()));
  EXPECT_TRUE(at::rand({2}).equal(before));
}

TEST(Spec, ReadsPlainValues) {
  EXPECT_EQ(parsed("3").toInt(), 3);
  EXPECT_EQ(parsed("-3").toInt(), -3);
  EXPECT_EQ(parsed("2.5").toDouble(), 2.5);
  EXPECT_EQ(parsed("1e3").toDouble(), 1000);
  EXPECT_EQ(parsed("-inf").toDouble(), -INFINITY);
  EXPECT_TRUE(parsed("true").toBool());
  EXPECT_FALSE(parsed("false").toBool());
  EXPECT_EQ(parsed(R"("a \"b\" \n c, [d")").toStringRef(), "a \"b\" \n c, [d");
  EXPECT_TRUE(parsed("none").isNone());
}

TEST(Spec, ReadsTuplesListsAndDicts) {
  const c10::IValue tuple = parsed("(float32[2], 3, (true, none))");
  ASSERT_TRUE(tuple.isTuple());
  EXPECT_EQ(tuple.toTupleRef().elements()[1].toInt(), 3);
  EXPECT_TRUE(tuple.toTupleRef().elements()[2].isTuple());
  EXPECT_TRUE(parsed("[1, 2, 3]").isIntList());
  EXPECT_TRUE(parsed("[float32[2], float32[3]]").isTensorList());
  const c10::IValue dict = parsed(R"({"a": float32[1], "b": float32[2]})");
  ASSERT_TRUE(dict.isGenericDict());
  EXPECT_EQ(dict.toGenericDict().at("b").toTensor().numel(), 2);
  EXPECT_EQ(parsed("()").toTupleRef().size(), 0);
  EXPECT_EQ(parsed("(1,)").toTupleRef().size(), 1);
}

TEST(Spec, ErrorNamesPlaceAndRemedyInOneLine) {
  const struct {
    const char* spec;
    const char* expected;
  } cases[] = {
      {"", "a value is missing"},
      {"float32", "followed by its sizes, as in float32[1,3,224,224]"},
      {"float32[1,3", "expected ',' or ']'"},
      {"float32[-1]", "not negative"},
      {"float32[a]", "a size must be a whole number"},
      {"flaot32[2]", "did you mean 'float32'"},
      {"float32[2]=0..", "the end of the range is missing"},
      {"int64[2]=5..5", "above its beginning"},
      {"int64[2]=0..1.5", "whole numbers"},
      {"float32[2]=full", "zeros, ones, arange"},
      {"\"open", "closing '\"' is missing"},
      {"3 4", "nothing should follow here"},
      {"99999999999999999999", "is no number of 64 bits"},
      {"[1, 2", "expected ',' or ']'"},
      {"{1 2}", "expected ':'"},
      {"%", "this is no value"},
  };
  for (const auto& each : cases) {
    const std::string message = error_of(each.spec);
    EXPECT_THAT(message, ::testing::HasSubstr(each.expected)) << each.spec;
    EXPECT_THAT(message, ::testing::StartsWith("bad SPEC '")) << each.spec;
    EXPECT_EQ(message.find('\n'), std::string::npos) << each.spec;
  }
}

TEST(Spec, RefusesTensorsThatAreTooLarge) {
  EXPECT_THAT(error_of("float32[1000000,1000000,1000000]"), ::testing::StartsWith("bad SPEC"));
  EXPECT_THAT(error_of(std::string(5000, '(')), ::testing::HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace sconce::cli
