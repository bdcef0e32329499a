#include "base/error.h"
#include "pipeline/render/figure.h"
#include "pipeline/render/render.h"

namespace hetu {

std::string render_pdf(const std::vector<TimelineRowSet>&, const SvgOptions&) { return pdf_of({}); }

std::string pdf_of(const Figure&) {
  fail(
      Code::Unsupported,
      "this build can't write PDF, because it was built without cairo (package libcairo2-dev); use "
      "SVG or HTML");
}

}  // namespace hetu
