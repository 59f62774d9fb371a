#include "tests/docs/listings.h"

#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

TEST(Listings, DifferencesAreTheLinesThatAreRemovedAndAdded) {
  EXPECT_EQ(
      difference("%1 = a()\n%2 = b(%1)\n%3 = c(%2)\n%4 = d(%3)\n", "%1 = a()\n  %5 = c(%1)\n  %6 = e(%5)\n  %7 = d(%6)\n"),
      "  …\n- %2 = b(%1)\n  …\n+   %6 = e(%5)\n  …\n");
  EXPECT_EQ(difference("%x.1 = a()\n", "%x.2 = a()\n"), "- %x.1 = a()\n+ %x.2 = a()\n");
}

TEST(Listings, LongOnesLoseTheirMiddle) {
  EXPECT_EQ(shortened("1\n2\n3\n4\n5\n6\n7\n8\n"), "1\n2\n3\n4\n5\n6\n7\n8\n");
  EXPECT_EQ(shortened("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), "1\n2\n3\n4\n5\n…\n8\n9\n");
  EXPECT_EQ(difference("", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"), "+ 1\n+ 2\n+ 3\n+ 4\n+ 5\n+ …\n+ 8\n+ 9\n");
}

}  // namespace
}  // namespace sconce::testing
