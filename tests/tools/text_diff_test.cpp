#include "tools/sconce/report/text_diff.h"

#include <gtest/gtest.h>

#include <random>

namespace sconce::cli {
namespace {

std::string lines(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& line : all) {
    text += line + "\n";
  }
  return text;
}

std::string diff(const std::string& before, const std::string& after, size_t context = 3) {
  return unified_diff(diff_texts(before, after), context);
}

TEST(TextDiff, SaysNothingOfEqualTexts) {
  EXPECT_EQ(diff("a\nb\n", "a\nb\n"), "");
  EXPECT_EQ(diff("", ""), "");
}

TEST(TextDiff, ShowsWhatIsGoneAndNewWithItsContext) {
  EXPECT_EQ(diff(lines({"1", "2", "3", "4", "old", "5", "6", "7", "8"}),
                 lines({"1", "2", "3", "4", "new", "5", "6", "7", "8"}), 2),
            "@@ -3,5 +3,5 @@\n 3\n 4\n-old\n+new\n 5\n 6\n");
  EXPECT_EQ(diff("", "a\n"), "@@ -1,0 +1,1 @@\n+a\n");
  EXPECT_EQ(diff("a\nb\n", "b\n"), "@@ -1,2 +1,1 @@\n-a\n b\n");
}

TEST(TextDiff, JoinsHunksThatTouch) {
  const std::string before = lines({"a", "1", "2", "b", "3", "4", "5", "c", "6"});
  const std::string after = lines({"A", "1", "2", "B", "3", "4", "5", "C", "6"});
  EXPECT_EQ(diff(before, after, 1), "@@ -1,5 +1,5 @@\n-a\n+A\n 1\n 2\n-b\n+B\n 3\n@@ -7,3 +7,3 @@\n 5\n-c\n+C\n 6\n");
}

TEST(TextDiff, LooksPastNumbersOfNamelessValuesAndLocations) {
  EXPECT_EQ(diff("  %3 : Tensor = aten::relu(%x) # model.py:3:1\n", "  %4 : Tensor = aten::relu(%x) # model.py:9:1\n"), "");
  EXPECT_NE(diff("  %3 : Tensor = aten::relu(%x)\n", "  %3 : Tensor = aten::relu(%y)\n"), "");
}

TEST(TextDiff, ShowsOperandsThatChanged) {
  const std::string before =
      lines({"%6 : Tensor = aten::sub(%3, %5)", "%7 : Tensor = aten::sub(%3, %5)", "%8 : Tensor = aten::mul(%6, %7)"});
  const std::string after = lines({"%6 : Tensor = aten::sub(%3, %5)", "%8 : Tensor = aten::mul(%6, %6)"});
  EXPECT_EQ(diff(before, after, 0),
            "@@ -2,2 +2,1 @@\n-%7 : Tensor = aten::sub(%3, %5)\n-%8 : Tensor = aten::mul(%6, %7)\n"
            "+%8 : Tensor = aten::mul(%6, %6)\n");
  // Renumbered as a whole, nothing changed.
  EXPECT_EQ(diff("%1 : Tensor = aten::relu(%x)\n%2 : Tensor = aten::neg(%1)\n",
                 "%5 : Tensor = aten::relu(%x)\n%9 : Tensor = aten::neg(%5)\n"),
            "");
  EXPECT_NE(diff("%1 : Tensor = aten::relu(%x)\n%2 : Tensor = aten::neg(%1)\n%3 : Tensor = aten::neg(%1)\n",
                 "%1 : Tensor = aten::relu(%x)\n%2 : Tensor = aten::neg(%1)\n%3 : Tensor = aten::neg(%2)\n"),
            "");
}

TEST(TextDiff, FindsTwoLinesInALongChain) {
  std::vector<std::string> before;
  for (int i = 0; i < 2000; ++i) {
    before.push_back("%" + std::to_string(i + 1) + " : Tensor = aten::relu(%" + std::to_string(i) + ")");
  }
  const std::vector<std::string> after = before;
  before.insert(before.begin() + 700, "%9000 : Tensor = aten::relu(%3)");
  before.insert(before.begin() + 1300, "%9001 : Tensor = aten::relu(%3)");
  EXPECT_EQ(
      diff(lines(before), lines(after), 0),
      "@@ -701,1 +701,0 @@\n-%9000 : Tensor = aten::relu(%3)\n@@ -1301,1 +1300,0 @@\n-%9001 : Tensor = aten::relu(%3)\n");
}

TEST(TextDiff, FollowsLinesThatMoved) {
  EXPECT_EQ(diff(lines({"a", "b", "c", "d", "e"}), lines({"d", "a", "b", "c", "e"}), 0),
            "@@ -1,0 +1,1 @@\n+d\n@@ -4,1 +5,0 @@\n-d\n");
}

// Each side can be read off the diff, and no shorter one exists where the table is asked.
TEST(TextDiff, HoldsBothTexts) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const auto make = [&] {
      std::vector<std::string> all;
      for (size_t n = random() % 30; n > 0; --n) {
        all.push_back(std::string(1, static_cast<char>('a' + random() % 8)));
      }
      return all;
    };
    const auto before = make();
    const auto after = make();
    std::vector<std::string> left;
    std::vector<std::string> right;
    for (const DiffLine& line : diff_texts(lines(before), lines(after))) {
      if (line.kind != DiffLine::Kind::kNew) {
        left.push_back(line.before);
      }
      if (line.kind != DiffLine::Kind::kGone) {
        right.push_back(line.after);
      }
      EXPECT_TRUE(line.kind != DiffLine::Kind::kSame || line.before == line.after);
    }
    EXPECT_EQ(left, before);
    EXPECT_EQ(right, after);
  }
}

TEST(TextDiff, IsQuickOnLongTextsWithNothingUnique) {
  std::vector<std::string> before(20'000, "x");
  std::vector<std::string> after(15'000, "y");
  EXPECT_EQ(diff_texts(lines(before), lines(after)).size(), 35'000U);
}

}  // namespace
}  // namespace sconce::cli
