#include <gmock/gmock.h>

#include "base/error.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

TEST(NoPdf, SaysWhatTheBuildLacks) {
  for (const auto& [format, render] :
       {std::pair("PDF", render_pdf), std::pair("PNG", render_png)}) {
    try {
      render({}, {});
      FAIL() << "drew a figure without cairo";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Unsupported);
      EXPECT_THAT(e.what(), testing::HasSubstr("libcairo2-dev"));
      EXPECT_THAT(e.what(), testing::HasSubstr(format));
    }
  }
}

}  // namespace
}  // namespace hetu
