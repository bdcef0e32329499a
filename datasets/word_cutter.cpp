#include <utf8proc.h>

#include <array>

#include "base/error.h"
#include "datasets/word_piece.h"

namespace hetu {
namespace {

using Character = std::int32_t;

// The role of a character in cutting words.
enum class Kind : std::uint8_t { Letter, Blank, Dropped, Alone };

bool is_ideograph(Character c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B820 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Returns true for punctuation: all printable ASCII characters except letters and digits.
bool is_ascii_punctuation(Character c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
         (c >= 123 && c <= 126);
}

Kind kind_of(Character c) {
  if (c == '\t' || c == '\n' || c == '\r' || c == ' ') return Kind::Blank;
  if (c == 0 || c == 0xFFFD) return Kind::Dropped;
  if (is_ascii_punctuation(c) || is_ideograph(c)) return Kind::Alone;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return Kind::Dropped;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return Kind::Blank;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return Kind::Alone;
    default:
      return Kind::Letter;
  }
}

// Returns the kinds of ASCII and Latin-1 characters, which make up nearly all text.
const std::array<Kind, 256>& first_kinds() {
  static const std::array<Kind, 256> kinds = [] {
    std::array<Kind, 256> out{};
    for (int c = 0; c < 256; ++c) out[static_cast<std::size_t>(c)] = kind_of(c);
    return out;
  }();
  return kinds;
}

// An assembler of words from characters. `take` and `letter` are the only places that decide what
// becomes of a character.
class Words {
 public:
  using Word = std::function<bool(std::string_view, int)>;

  Words(bool lower_case, const Word& word)
      : lower_case_(lower_case), word_(word), kinds_(first_kinds()) {}

  // Processes a character. Returns false if no more words are wanted.
  bool take(Character c) {
    const Kind kind = c < 256 ? kinds_[static_cast<std::size_t>(c)] : kind_of(c);
    switch (kind) {
      case Kind::Dropped:
        return true;
      case Kind::Blank:
        return end();
      case Kind::Alone:
        return end() && letter(c) && end();
      case Kind::Letter:
        return letter(c);
    }
    return true;
  }

  bool end() {
    if (characters_ == 0) return true;
    const bool more = word_(word_text_, characters_);
    word_text_.clear();
    characters_ = 0;
    return more;
  }

 private:
  bool letter(Character c) {
    if (!lower_case_) return put(c);
    if (c < 128) return put(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    std::array<Character, 32> parts;
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(c, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const Character part = parts[static_cast<std::size_t>(i)];
      if (utf8proc_category(part) == UTF8PROC_CATEGORY_MN) continue;
      const Character small = utf8proc_tolower(part);
      // A few letters decompose into punctuation or blanks.
      const Kind kind = small == c ? Kind::Letter : kind_of(small);
      if (kind == Kind::Alone && !(end() && put(small) && end())) return false;
      if (kind == Kind::Blank && !end()) return false;
      if (kind == Kind::Letter && !put(small)) return false;
    }
    return true;
  }

  bool put(Character c) {
    if (c < 128) {
      word_text_ += static_cast<char>(c);
    } else {
      std::array<utf8proc_uint8_t, 4> bytes;
      const auto count = static_cast<std::size_t>(utf8proc_encode_char(c, bytes.data()));
      word_text_.append(reinterpret_cast<const char*>(bytes.data()), count);
    }
    ++characters_;
    return true;
  }

  const bool lower_case_;
  const Word& word_;
  const std::array<Kind, 256>& kinds_;
  std::string word_text_;
  int characters_ = 0;
};

}  // namespace

TextEncoding text_encoding(const std::string& name) {
  if (name == "utf-8") return TextEncoding::Utf8;
  require(name == "latin-1", "unknown text encoding '{}'; use utf-8 or latin-1", name);
  return TextEncoding::Latin1;
}

void WordCutter::each(
    std::string_view text, TextEncoding encoding,
    const std::function<bool(std::string_view word, int characters)>& word) const {
  Words words(lower_case_, word);
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  for (utf8proc_ssize_t at = 0; at < size;) {
    Character c = data[at];
    if (c >= 128 && encoding == TextEncoding::Utf8) {
      const utf8proc_ssize_t bytes = utf8proc_iterate(data + at, size - at, &c);
      if (bytes < 0) {
        fail(Code::Io, "byte {}, 0x{:02x}, is not UTF-8; is the text latin-1?", at + 1,
             static_cast<unsigned>(data[at]));
      }
      at += bytes;
    } else {
      ++at;
    }
    if (!words.take(c)) return;
  }
  words.end();
}

}  // namespace hetu
