#include "base/error.h"
#include "pipeline/render/figure.h"
#include "pipeline/render/render.h"

namespace hetu {

std::string render_pdf(const std::vector<TimelineRowSet>&, const SvgOptions&) { return pdf_of({}); }

std::string pdf_of(const Figure&) {
  fail(
      Code::Unsupported,
      "this build has no PDF: it was made without cairo (package libcairo2-dev); SVG and HTML need "
      "nothing");
}

}  // namespace hetu
