#include <gmock/gmock.h>

#include "base/error.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

TEST(NoPdf, SaysWhatTheBuildLacks) {
  try {
    render_pdf({}, {});
    FAIL() << "drew a PDF without cairo";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Unsupported);
    EXPECT_THAT(e.what(), testing::HasSubstr("libcairo2-dev"));
  }
}

}  // namespace
}  // namespace hetu
