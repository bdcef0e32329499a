#include "graph/base/error.h"
#include "pipeline/render.h"

namespace hetu {

std::string render_pdf(const std::vector<TimelineRowSet>&, const SvgOptions&) {
  fail(
      Code::Unsupported,
      "this build has no PDF: it was made without cairo (package libcairo2-dev); SVG and HTML need "
      "nothing");
}

}  // namespace hetu
