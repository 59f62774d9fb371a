// Pickles: every rule has a pickle that breaks it.
#include "load/check/pickle_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

// What the check says of the instructions after the header; empty if it finds nothing. Storages "0" and "1" have 24 and
// 4 bytes.
std::string problem_of_pickle(const std::string& instructions, const std::string& header = "\x80\x02"s) {
  const std::string pickle = header + instructions;
  try {
    check_pickle({reinterpret_cast<const uint8_t*>(pickle.data()), pickle.size()},
                 [](std::string_view key) -> std::optional<uint64_t> {
                   return key == "0" ? std::optional<uint64_t>(24) : key == "1" ? std::optional<uint64_t>(4) : std::nullopt;
                 });
    return "";
  } catch (const MalformedArchive& problem) {
    return problem.what();
  }
}

std::string number(int value) {
  std::string text = "J";
  for (int i = 0; i < 4; ++i) {
    text.push_back(static_cast<char>(value >> (8 * i)));
  }
  return text;
}
std::string numbers(const std::vector<int>& values) {
  std::string text = "(";
  for (const int value : values) {
    text += number(value);
  }
  return text + "t";
}
std::string text(const std::string& value) { return "X" + number(static_cast<int>(value.size())).substr(1) + value; }
std::string storage(const std::string& key, int count, const std::string& type = "FloatStorage",
                    const std::string& device = "cpu") {
  return "(" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text(device) + number(count) + "tQ";
}
std::string tensor(const std::string& storage, int offset, const std::vector<int>& sizes, const std::vector<int>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + numbers(sizes) + numbers(strides) + "\x89}tR.";
}

TEST(PickleCheck, AcceptsWhatPicklersWrite) {
  EXPECT_EQ(problem_of_pickle("N."), "");
  EXPECT_EQ(
      problem_of_pickle(
          "(K\x01M\x02\x02J\x01\x02\x03\x04\x8a\x08\x01\x02\x03\x04\x05\x06\x07\x08G\x01\x02\x03\x04\x05\x06\x07\x08t."s),
      "");
  EXPECT_EQ(problem_of_pickle("]q\x00(K\x01K\x02"s
                              "e.",
                              "\x80\x02"s),
            "");
  EXPECT_EQ(problem_of_pickle("]q\x01(K\x01K\x02"
                              "eK\x03"
                              "a."s),
            "");
  EXPECT_EQ(problem_of_pickle("}(" + text("a") + "K\x01u" + text("b") + "K\x02s."), "");
  EXPECT_EQ(problem_of_pickle("c__torch__\nNet\n)\x81}(" + text("w") + "Nub."), "");
  EXPECT_EQ(problem_of_pickle(")\x85\x88\x86\x89N\x87."s), "");
  EXPECT_EQ(problem_of_pickle(tensor(storage("0", 6), 0, {2, 3}, {3, 1})), "");
  EXPECT_EQ(problem_of_pickle(tensor(storage("0", 6), 5, {1, 1}, {100, 100})), "") << "one element has no stride";
  EXPECT_EQ(problem_of_pickle(tensor(storage("none", 0), 0, {0, 3}, {3, 1})), "") << "empty storages are not stored";
  EXPECT_EQ(problem_of_pickle(tensor(storage("0", 3, "LongStorage"), 2, {}, {})), "");
  EXPECT_EQ(problem_of_pickle(tensor(storage("0", 60, "FloatStorage", "meta"), 0, {60}, {1})), "") << "its data is nowhere";
}

TEST(PickleCheck, RefusesOtherProtocols) {
  EXPECT_THAT(problem_of_pickle("N.", "\x80\x04"), HasSubstr("protocol 2"));
  EXPECT_THAT(problem_of_pickle("N.", "ab"), HasSubstr("protocol 2"));
}

TEST(PickleCheck, RefusesEveryTruncation) {
  const std::string pickle = tensor(storage("0", 6), 0, {2, 3}, {3, 1});
  for (size_t length = 0; length < pickle.size(); ++length) {
    EXPECT_THAT(problem_of_pickle(pickle.substr(0, length)), HasSubstr("ends in the middle")) << length;
  }
}

TEST(PickleCheck, RefusesInstructionsThatLibTorchDoesNotRead) {
  for (const char letter : {'0', '2', 'i', 'o', 'P', 'S', '\x82', '\x8b', '\x95'}) {
    EXPECT_THAT(problem_of_pickle(std::string(1, letter) + "."), HasSubstr("none that LibTorch reads (byte 2)"));
  }
}

TEST(PickleCheck, RefusesInstructionsWithoutTheirOperands) {
  for (const std::string& instructions : {"\x85."s, "N\x86."s, "NN\x87."s, "R."s, "NR."s, "b."s, "Q."s, "a."s, "]a."s, "s."s,
                                          "\x81."s, "q\x00."s, "](N(e."s}) {
    EXPECT_THAT(problem_of_pickle(instructions), ::testing::AnyOf(HasSubstr("lacks its operand"), HasSubstr("another kind")))
        << ::testing::PrintToString(instructions);
  }
  for (const char letter : {'t', 'e', 'u', 'l', 'd'}) {
    EXPECT_THAT(problem_of_pickle("]"s + letter + "."), HasSubstr("a mark is missing"));
  }
}

TEST(PickleCheck, RefusesOperandsOfAnotherKind) {
  EXPECT_THAT(problem_of_pickle("}(Ne."), HasSubstr("another kind"));
  EXPECT_THAT(problem_of_pickle("](NNu."), HasSubstr("another kind"));
  EXPECT_THAT(problem_of_pickle("}(Nu."), HasSubstr("a key lacks its value"));
  EXPECT_THAT(problem_of_pickle("N)R."), HasSubstr("no function and no class"));
  EXPECT_THAT(problem_of_pickle("NQ."), HasSubstr("not described as LibTorch does"));
  EXPECT_THAT(problem_of_pickle("cos\nsystem()\n)R."), HasSubstr("letters that no name has"));
}

TEST(PickleCheck, RefusesTheMemoOutOfRange) {
  EXPECT_THAT(problem_of_pickle("h\x03."s), HasSubstr("before it is written"));
  EXPECT_THAT(problem_of_pickle("Nr\xff\xff\xff\x7f."s), HasSubstr("out of range"));
}

TEST(PickleCheck, RefusesValuesThatHoldThemselves) {
  EXPECT_THAT(problem_of_pickle("]q\x01(h\x01"
                                "e."s),
              HasSubstr("holds itself"));
  EXPECT_THAT(problem_of_pickle("]q\x01(](h\x01"
                                "ee."s),
              HasSubstr("holds itself"));
  EXPECT_EQ(problem_of_pickle("](]q\x01h\x01"
                              "e."s),
            "")
      << "twice is not in itself";
}

TEST(PickleCheck, RefusesValuesNestedTooDeeply) {
  const auto nested = [](size_t depth) { return "N" + std::string(depth, '\x85') + "."; };
  EXPECT_EQ(problem_of_pickle(nested(900)), "");
  EXPECT_THAT(problem_of_pickle(nested(100000)), HasSubstr("nested too deeply"));
}

TEST(PickleCheck, RefusesWhatIsLeftOver) {
  EXPECT_THAT(problem_of_pickle("NN."), HasSubstr("more than one value"));
  EXPECT_THAT(problem_of_pickle("."), HasSubstr("or none"));
}

TEST(PickleCheck, RefusesStoragesThatTheArchiveDoesNotHold) {
  EXPECT_THAT(problem_of_pickle(tensor(storage("2", 6), 0, {6}, {1})), HasSubstr("not in the archive"));
  EXPECT_THAT(problem_of_pickle(tensor(storage("0", 7), 0, {6}, {1})), HasSubstr("larger than what the archive holds"));
  EXPECT_THAT(problem_of_pickle(tensor(storage("0", 4, "DoubleStorage"), 0, {1}, {1})), HasSubstr("larger than"));
  EXPECT_THAT(problem_of_pickle(tensor(storage("0", -1), 0, {1}, {1})), HasSubstr("impossible size"));
  EXPECT_THAT(problem_of_pickle(tensor(storage("0", 1, "WildStorage"), 0, {1}, {1})), HasSubstr("unknown type"));
}

TEST(PickleCheck, RefusesTensorsThatReachBeyondTheirStorage) {
  const std::string six = storage("0", 6);
  for (const std::string& beyond :
       {tensor(six, 1, {2, 3}, {3, 1}), tensor(six, 0, {7}, {1}), tensor(six, 0, {2}, {6}), tensor(six, 6, {}, {}),
        tensor(six, 0, {-1}, {1}), tensor(six, 0, {2}, {-1}), tensor(six, 0, {2147483647, 2147483647}, {2147483647, 1}),
        tensor(storage("1", 1), 0, {2}, {1})}) {
    EXPECT_THAT(problem_of_pickle(beyond), HasSubstr("a tensor reaches beyond its storage"));
  }
  EXPECT_THAT(problem_of_pickle(tensor(six, -1, {1}, {1})), HasSubstr("begins before its storage"));
  EXPECT_THAT(problem_of_pickle(tensor(six, 0, {2, 3}, {1})), HasSubstr("not described as LibTorch does"));
  EXPECT_THAT(problem_of_pickle(tensor("N", 0, {1}, {1})), HasSubstr("not described as LibTorch does"));
}

}  // namespace
}  // namespace sconce
