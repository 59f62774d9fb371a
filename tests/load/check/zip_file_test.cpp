// Zip archives: what is read, and what is refused before LibTorch sees it.
#include "load/check/zip_file.h"

#include "load/check/archive.h"
#include "load/check/code_check.h"
#include "tests/support/zip_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using ::testing::HasSubstr;
using testing::write_zip;
using testing::ZipContents;

Bytes bytes_of(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

// What the check says; empty when it finds nothing.
std::string problem_of(const std::string& file) {
  try {
    check_archive_bytes(bytes_of(file));
    return "";
  } catch (const MalformedArchive& problem) {
    return problem.what();
  }
}

const ZipContents kContents = {{"m/data.pkl", std::string("\x80\x02N.", 4)}, {"m/version", "3\n"}, {"m/empty", ""}};

std::string with_byte(std::string file, size_t at, char byte) {
  file.at(at) = byte;
  return file;
}

TEST(ZipFile, ReadsNamesAndContents) {
  const std::string file = write_zip(kContents);
  const ZipFile zip(bytes_of(file));
  ASSERT_EQ(zip.entries().size(), 3U);
  for (const auto& [name, content] : kContents) {
    const ZipEntry* entry = zip.find(name);
    ASSERT_NE(entry, nullptr) << name;
    zip.with_content(*entry, [&](Bytes got) { EXPECT_EQ(std::string(got.begin(), got.end()), content); });
  }
  EXPECT_EQ(zip.find("m/other"), nullptr);
  EXPECT_EQ(problem_of(file), "");
}

TEST(ZipFile, ReadsNamesBeyondAscii) {
  EXPECT_EQ(problem_of(write_zip({{"\xC3\xA9/data.pkl", std::string("\x80\x02N.", 4)}, {"\xC3\xA9/version", "3\n"}})), "");
}

TEST(ZipFile, ReadsAnArchiveWithACommentBehindIt) {
  std::string file = write_zip(kContents);
  file[file.size() - 2] = 5;
  EXPECT_EQ(problem_of(file + "hello"), "");
}

TEST(ZipFile, RefusesEveryTruncation) {
  const std::string file = write_zip(kContents);
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(problem_of(file.substr(0, length)), "") << length;
  }
}

TEST(ZipFile, SeesEveryChangedByteOfAContent) {
  const std::string file = write_zip({{"m/data", "0123456789"}});
  const size_t begin = file.find("0123456789");
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_THAT(problem_of(with_byte(file, begin + i, 'x')), HasSubstr("'m/data' does not have its checksum")) << i;
  }
}

TEST(ZipFile, RefusesDirectoriesThatLie) {
  const std::string file = write_zip(kContents);
  const size_t end = file.size() - 22;
  EXPECT_THAT(problem_of(with_byte(file, end + 19, '\x7f')), HasSubstr("outside of the file"));
  EXPECT_THAT(problem_of(with_byte(file, end + 10, 9)), HasSubstr("of the directory"));
  const size_t entry = file.find("PK\x01\x02");
  EXPECT_THAT(problem_of(with_byte(file, entry + 10, 12)), HasSubstr("packed in a way"));
  EXPECT_THAT(problem_of(with_byte(file, entry + 8, 1)), HasSubstr("encrypted"));
  EXPECT_THAT(problem_of(with_byte(file, entry + 24, 9)), HasSubstr("cannot have the size"));
  EXPECT_THAT(problem_of(with_byte(file, entry + 42, 1)), HasSubstr("does not begin as it should"));
}

TEST(ZipFile, RefusesADeflatedEntryThatGrowsMoreThanDeflateCan) {
  const std::string file = write_zip(kContents);
  const size_t entry = file.find("PK\x01\x02");
  const std::string deflated = with_byte(file, entry + 10, 8);
  EXPECT_THAT(problem_of(with_byte(deflated, entry + 27, '\x7f')), HasSubstr("cannot have the size"));
}

TEST(ZipFile, RefusesTwoEntriesInOnePlace) {
  const std::string file = write_zip({{"m/a", "same"}, {"m/a", "same"}});
  // The second entry of the directory, moved to the place of the first.
  const size_t second = file.find("PK\x01\x02", file.find("PK\x01\x02") + 1);
  EXPECT_THAT(problem_of(with_byte(file, second + 42, 0)), HasSubstr("share bytes"));
  EXPECT_THAT(problem_of(file), HasSubstr("two entries 'm/a'"));
}

TEST(ZipFile, RefusesNamesThatLeaveTheArchive) {
  EXPECT_THAT(problem_of(write_zip({{"m/../../etc/passwd", ""}})), HasSubstr("points outside"));
  EXPECT_THAT(problem_of(write_zip({{"/etc/passwd", ""}})), HasSubstr("impossible name"));
  EXPECT_THAT(problem_of(write_zip({{std::string("m/a\nb"), ""}})), HasSubstr("impossible name"));
  EXPECT_THAT(problem_of(write_zip({{"a", ""}})), HasSubstr("stands in no folder"));
  EXPECT_EQ(problem_of(write_zip({{"m/..a/b..", ""}})), "");
}

TEST(ZipFile, RefusesCodeThatIsNestedTooDeeply) {
  const auto code = [](size_t depth) { return std::string(depth, '(') + "x" + std::string(depth, ')'); };
  EXPECT_EQ(problem_of(write_zip({{"m/code/a.py", code(100)}})), "");
  EXPECT_THAT(problem_of(write_zip({{"m/code/a.py", code(100000)}})), HasSubstr("nested more than"));
}

// Of what LibTorch does not read, only the checksums count.
TEST(ZipFile, LetsOtherFilesBe) {
  EXPECT_EQ(problem_of(write_zip({{"m/data", ""},
                                  {"m/traced_inputs.pkl", "no pickle"},
                                  {"m/extra/labels.pkl", "no pickle"},
                                  {"m/extra/notes.py", std::string(1000, '(')},
                                  {"other/readme", ""}})),
            "");
}

std::string problem_of_code(const std::string& code) {
  try {
    check_code(code);
    return "";
  } catch (const MalformedArchive& problem) {
    return problem.what();
  }
}

std::string repeated(const std::string& piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) {
    text += piece;
  }
  return text;
}

TEST(CodeCheck, RefusesEveryKindOfDeepNesting) {
  EXPECT_EQ(problem_of_code("return " + repeated("-", 100) + "x"), "");
  for (const char* piece : {"-", "not ", "x if y else ", "x ** ", "x.", "x + ", "x and ", "[", "f()"}) {
    EXPECT_NE(problem_of_code("return " + repeated(piece, 100'000) + "x"), "") << piece;
  }
  std::string blocks;
  for (size_t i = 0; i < 2000; ++i) {
    blocks += std::string(2 * i, ' ') + "if x:\n";
  }
  EXPECT_THAT(problem_of_code(blocks), HasSubstr("blocks are nested"));
}

TEST(CodeCheck, LetsLongListsLongTextsAndManyStatementsBe) {
  EXPECT_EQ(problem_of_code("x = [" + repeated("-1, ", 100'000) + "2]"), "");
  EXPECT_EQ(problem_of_code(repeated("x = a.b.c(1) + 2\n", 100'000)), "");
  const std::string brackets = repeated("(", 1000);
  EXPECT_EQ(problem_of_code("x = \"" + brackets + "\\\"" + brackets + "\"\n"), "");
  EXPECT_EQ(problem_of_code("x = '''" + brackets + "'" + brackets + "'''\n"), "");
  EXPECT_EQ(problem_of_code("# " + brackets + "\nx = 1"), "");
  EXPECT_NE(problem_of_code("x = ''''''" + brackets), "") << "after a text comes code again";
}

}  // namespace
}  // namespace sconce
