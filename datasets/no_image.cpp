#include "base/error.h"
#include "datasets/image.h"

namespace hetu {

bool reads_images() { return false; }

void require_image_support() {
  fail(Code::Unsupported,
       "this build cannot read images; install libjpeg-dev and libpng-dev and configure with "
       "-DHETU_IMAGES=ON");
}

DecodeTrouble decode_image(const std::vector<std::uint8_t>&, Image&) {
  require_image_support();
  return "";
}

DecodeTrouble decode_part(const std::vector<std::uint8_t>&, const PartOf&, Image&, Box&) {
  require_image_support();
  return "";
}

std::vector<std::uint8_t> encode_jpeg(const Image&, int) {
  require_image_support();
  return {};
}

}  // namespace hetu
