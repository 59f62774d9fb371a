// `sconce dump --stage memory --format svg`, and what `explain` says about prepared steps.
#include "tools/sconce/report/memory_picture.h"
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns whether every tag of the XML text is closed in its order.
bool is_well_formed(const std::string& xml) {
  static const std::regex tag("<(/?)([a-z]+)[^<>]*?(/?)>|<\\?[^<>]*\\?>|[<>]|&(?!amp;|lt;|gt;|quot;)");
  std::vector<std::string> open;
  for (std::sregex_iterator each(xml.begin(), xml.end(), tag); each != std::sregex_iterator(); ++each) {
    const std::smatch& match = *each;
    if (match.str(0).starts_with("<?")) {
      continue;
    }
    if (!match[2].matched) {
      return false;
    }
    if (match.str(1) == "/") {
      if (open.empty() || open.back() != match.str(2)) {
        return false;
      }
      open.pop_back();
    } else if (match.str(3) != "/") {
      open.push_back(match.str(2));
    }
  }
  return open.empty();
}

struct Rectangle {
  size_t first, last, offset, bytes;
};
std::vector<Rectangle> rectangles_of(const std::string& svg) {
  static const std::regex rectangle(
      "<rect class=\"slot\"[^>]* data-first=\"(\\d+)\" data-last=\"(\\d+)\" data-offset=\"(\\d+)\" data-bytes=\"(\\d+)\">");
  std::vector<Rectangle> found;
  for (std::sregex_iterator each(svg.begin(), svg.end(), rectangle); each != std::sregex_iterator(); ++each) {
    const auto number = [&](size_t group) { return static_cast<size_t>(std::stoull(each->str(group))); };
    found.push_back({number(1), number(2), number(3), number(4)});
  }
  return found;
}

std::vector<std::string> picture_of(const std::string& model) {
  return {"dump",     model_file(model + ".pt"),      "--stage", "memory", "--format", "svg",
          "--inputs", model_file(model + ".cases.pt")};
}

TEST(MemoryPicture, PlacesNoTwoTensorsOfOneTimeInTheSameBytes) {
  for (const std::string model : {"mlp", "decoder_step", "control_flow"}) {
    const ProgramResult drawn = sconce(picture_of(model));
    ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
    EXPECT_TRUE(is_well_formed(drawn.out)) << drawn.out.substr(0, 2000);
    const std::vector<Rectangle> rectangles = rectangles_of(drawn.out);
    EXPECT_FALSE(rectangles.empty());
    for (size_t a = 0; a < rectangles.size(); ++a) {
      for (size_t b = a + 1; b < rectangles.size(); ++b) {
        const Rectangle& one = rectangles[a];
        const Rectangle& other = rectangles[b];
        const bool share_time = one.first <= other.last && other.first <= one.last;
        const bool share_bytes = one.offset < other.offset + other.bytes && other.offset < one.offset + one.bytes;
        EXPECT_FALSE(share_time && share_bytes) << model << ": " << a << " and " << b;
      }
    }
  }
}

TEST(MemoryPicture, AgreesWithExplainAndNamesNodes) {
  const auto memory = json_of(sconce({"explain", model_file("mlp.pt"), "--inputs", model_file("mlp.cases.pt"), "--no-grad",
                                      "--json"}))["plans"][0]["memory"];
  const ProgramResult drawn = sconce(picture_of("mlp"));
  size_t in_arena = 0;
  for (const auto& slot : memory["slots"]) {
    in_arena += slot["bytes"] > 0 ? 1 : 0;
  }
  EXPECT_GT(in_arena, 0U);
  EXPECT_EQ(rectangles_of(drawn.out).size(), in_arena);
  EXPECT_THAT(drawn.out, ::testing::ContainsRegex("<title>slot [0-9]+: [^<]*aten::linear\\([^<]*linear\\.py:"));
  EXPECT_EQ(memory["has_layout"], true);
  EXPECT_GE(memory["arena_bytes"].get<size_t>(), memory["lower_bound"].get<size_t>());
}

TEST(MemoryPicture, NeedsArgumentsAndAnArena) {
  expect_usage_error({"dump", model_file("mlp.pt"), "--stage", "memory"}, "--stage memory: is a picture: add --format svg");
  expect_usage_error({"dump", model_file("mlp.pt"), "--stage", "memory", "--format", "svg"},
                     "--stage memory: needs arguments");
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "m.pt", "def forward(self, x: Tensor):\n    return torch.sort(x)\n");
  expect_refusal({"dump", model, "--stage", "memory", "--format", "svg", "--input", "float32[3]"}, "the plan has no arena");
}

TEST(MemoryPicture, EscapesWhatNodesContain) {
  MemoryExplanation memory;
  memory.has_layout = true;
  memory.arena_bytes = memory.lower_bound = 64;
  memory.positions = 1;
  memory.slots.push_back({.bytes = 64, .node = "%a : Tensor = my::op[text=\"<&>\"](%x)", .source = "a&b.py:1:2"});
  const std::string svg = cli::draw_memory(memory, "<m>");
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  EXPECT_THAT(svg, HasSubstr("a&amp;b.py:1:2"));
}

TEST(ExplainSteps, SaysWhatIsNotPreparedAndWhy) {
  const ScratchFolder scratch;
  const std::string model = write_model(
      scratch, "m.pt", "def forward(self, x: Tensor):\n    y = (x + 1).relu() * 2\n    return torch.sort(y)[0].exp()\n");
  std::vector<std::string> explain = {"explain", model, "--input", "float32[4,4]"};
  const ProgramResult text = sconce(explain);
  EXPECT_THAT(text.out, HasSubstr("operators on tensors: 4 prepared, 1 ordinary; "));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("    1  aten::sort  <string>:3:11  it returns several values\n"));
  EXPECT_THAT(text.out,
              ::testing::ContainsRegex("memory: arena of [0-9]+ B for 3 slots, lower bound [0-9]+ B \\([0-9.]+x\\)"));
  explain.emplace_back("--json");
  const auto plan = json_of(sconce(explain))["plans"][0];
  EXPECT_EQ(plan["prepared_steps"], 4);
  ASSERT_EQ(plan["not_prepared"].size(), 1U);
  EXPECT_EQ(plan["not_prepared"][0]["operator"], "aten::sort");
  EXPECT_THAT(plan["not_prepared"][0]["node"].get<std::string>(), HasSubstr("aten::sort("));
}

TEST(ExplainSteps, SaysThatRunsRecordedGradients) {
  std::vector<std::string> explain = {"explain", model_file("mlp.pt"), "--inputs", model_file("mlp.cases.pt")};
  const ProgramResult with_grad = sconce(explain);
  EXPECT_THAT(with_grad.out, ::testing::ContainsRegex("    5  \\(all\\) +a call recorded gradients"));
  EXPECT_THAT(with_grad.out, HasSubstr("no arena yet"));
  explain.emplace_back("--no-grad");
  EXPECT_THAT(sconce(explain).out, Not(HasSubstr("recorded gradients")));
}

}  // namespace
}  // namespace sconce::tests
