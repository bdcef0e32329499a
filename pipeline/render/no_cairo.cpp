#include "base/error.h"
#include "pipeline/render/figure.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

[[noreturn]] void refuse(const char* format) {
  fail(Code::Unsupported,
       "this build can't write {}, because it was built without cairo (package libcairo2-dev); use "
       "SVG or HTML",
       format);
}

}  // namespace

std::string render_pdf(const std::vector<TimelineRowSet>&, const SvgOptions&) { refuse("PDF"); }

std::string render_png(const std::vector<TimelineRowSet>&, const SvgOptions&) { refuse("PNG"); }

std::string pdf_of(const Figure&) { refuse("PDF"); }

std::string png_of(const Figure&) { refuse("PNG"); }

}  // namespace hetu
