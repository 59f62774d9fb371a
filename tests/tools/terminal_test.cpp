#include "base/nearest_name.h"
#include "report/number_format.h"
#include "report/table.h"
#include "tools/sconce/ui/percentile.h"
#include "tools/sconce/ui/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sconce::ui {
namespace {

TEST(Table, AlignsColumnsByCharactersAndKeepsNotesOutOfTheWidths) {
  Table table({{"name", Align::kLeft}, {"time"}});
  table.add_row({"a", "1 ms"});
  table.add_row({"größer", "10 ms"});
  table.add_row({"a note that is longer than all columns together"});
  EXPECT_EQ(table.render(),
            "name     time\n"
            "------  -----\n"
            "a        1 ms\n"
            "größer  10 ms\n"
            "a note that is longer than all columns together\n");
}

TEST(NumberFormat, ShowsThreeDigitsAndTheUnit) {
  EXPECT_EQ(format_duration(1.2345), "1.23 s");
  EXPECT_EQ(format_duration(0.0123), "12.3 ms");
  EXPECT_EQ(format_duration(0.00099996), "1.00 ms");
  EXPECT_EQ(format_duration(812e-9), "812 ns");
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_ratio(1.5), "1.50x");
  EXPECT_EQ(format_ratio(NAN), "-");
  EXPECT_EQ(format_percent(0.004), "0.4 %");
  EXPECT_EQ(format_percent(0.0999), "10 %");
  EXPECT_EQ(format_percent(1.6), "160 %");
  EXPECT_EQ(format_percent(NAN), "-");
  EXPECT_EQ(format_rate(0.25), "0.25");
  EXPECT_EQ(format_rate(999.4), "999");
  EXPECT_EQ(format_rate(12345.4), "12 345");
  EXPECT_EQ(format_rate(INFINITY), "-");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(-3.0 * 1024 * 1024), "-3.00 MiB");
  EXPECT_EQ(format_count(1234567), "1 234 567");
  EXPECT_EQ(format_count(999), "999");
}

TEST(Percentile, IsASampleThatTheShareDoesNotExceed) {
  const std::vector<double> samples = {5, 1, 4, 2, 3, 6, 7, 8, 9, 10};
  EXPECT_EQ(median(samples), 5);
  EXPECT_EQ(percentile(samples, 0.9), 9);
  EXPECT_EQ(percentile(samples, 0.99), 10);
  EXPECT_EQ(percentile(samples, 0), 1);
  EXPECT_EQ(median({3}), 3);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(NearestName, FindsTyposAndParts) {
  const std::vector<std::string> names = {"run", "check", "bench", "dump"};
  EXPECT_THAT(nearest_names("chek", names), ::testing::ElementsAre("check"));
  EXPECT_EQ(did_you_mean("benhc", names), "; did you mean 'bench'?");
  EXPECT_EQ(did_you_mean("something", names), "; there are: run, check, bench, dump");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

TEST(ProgressBar, LineShowsShareAndIsCutToTheWidth) {
  EXPECT_EQ(progress_line("checking", 1, 2, "case 0", 80), "checking [############............]  50%  1/2  case 0");
  EXPECT_EQ(progress_line("x", 0, 0, "", 80), "x [########################] 100%  0/0");
  EXPECT_EQ(display_width(progress_line("checking", 1, 2, "größer und größer", 60)), 60);
}

}  // namespace
}  // namespace sconce::ui
