#include "base/exception_message.h"

#include <gtest/gtest.h>

#include <stdexcept>

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

TEST(ExceptionMessage, OfATracedModelIsWithoutItsFrames) {
  const std::runtime_error raised(
      "The following operation failed in the TorchScript interpreter.\n"
      "Traceback of TorchScript, serialized code (most recent call last):\n"
      "  File \"code/__torch__.py\", line 30, in forward\n"
      "    _3, _4, _5 = torch.lstm(input, _1, _2, True, 2, 0., False, False, True)\n"
      "                 ~~~~~~~~~~ <--- HERE\n"
      "    return _3\n\n"
      "Traceback of TorchScript, original code (most recent call last):\n"
      "nn/modules/rnn.py(1169): forward\n"
      "nn/modules/module.py(1769): _slow_forward\n"
      "RuntimeError: could not create a primitive (12): none\n");
  EXPECT_EQ(plain_message(raised), "could not create a primitive (12): none");
}

TEST(ExceptionMessage, SaysWhichOperatorFailed) {
  c10::Error error(std::string("sizes do not fit"));
  error.add_context(operator_context("%3 = aten::mm(%1, %2)", "  File \"inner.py\", line 3\n"));
  error.add_context("while the data were read");
  error.add_context(operator_context("%5 = prim::CallMethod(%1)", "  File \"outer.py\", line 7\n"));
  error.add_context(operator_context("no operator", {}));
  const FailedOperator failed = failed_operator(error);
  EXPECT_EQ(failed.message, "sizes do not fit\nwhile the data were read");
  EXPECT_EQ(failed.frames, "  File \"outer.py\", line 7\n  File \"inner.py\", line 3\n");
}

TEST(ExceptionMessage, LosesTheFramesAndKeepsClassAndContext) {
  try {
    without_frames([] {
      try {
        TORCH_CHECK_INDEX(false, "index 3 is out of range");
      } catch (c10::Error& error) {
        EXPECT_NE(std::string(error.what()).find("Exception raised from"), std::string::npos);
        error.add_context("in %1 : Tensor");
        error.add_context("in forward");
        throw;
      }
    });
    FAIL();
  } catch (const c10::IndexError& error) {
    EXPECT_STREQ(error.what(), error.what_without_backtrace());
    EXPECT_STREQ(error.what(), "index 3 is out of range\n  in %1 : Tensor\n  in forward");
    EXPECT_EQ(error.context().size(), 2);
  }
}

}  // namespace
}  // namespace sconce
