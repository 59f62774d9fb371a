#include "base/exception_message.h"

#include <gtest/gtest.h>

namespace sconce {
namespace {

TEST(ExceptionMessage, LosesTheInsidesOfLibTorch) {
  EXPECT_EQ(summarize_libtorch_error(
                "type.present() INTERNAL ASSERT FAILED at \"/pytorch/torch/csrc/jit/frontend/parser.cpp\":12, please "
                "report a bug to PyTorch. \nframe #0: what"),
            "");
  EXPECT_EQ(summarize_libtorch_error(
                "false INTERNAL ASSERT FAILED at \"a.cpp\":1, please report a bug to PyTorch. Unexpected kind: assign"),
            "Unexpected kind: assign");
  EXPECT_EQ(
      summarize_libtorch_error("[enforce fail at inline_container.cc:145] . Couldn't parse the version x as Long Long."),
      "Couldn't parse the version x as Long Long");
  EXPECT_EQ(summarize_libtorch_error("reading file a: unexpected size. This is an internal miniz error. If you are seeing"),
            "reading file a: unexpected size");
  EXPECT_EQ(summarize_libtorch_error("\nexpected ) but found 'ident' here:\n  def f(\n"), "expected ) but found 'ident'");
  EXPECT_EQ(summarize_libtorch_error("[enforce fail at x"), "");
  EXPECT_EQ(summarize_libtorch_error(""), "");
}

}  // namespace
}  // namespace sconce
