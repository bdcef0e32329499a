// Text as the tokens of a WordPiece vocabulary, as BERT reads it. Read by bert_text.cpp, by whoever
// trains a vocabulary and by python/.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// How bytes of a text are characters.
enum class TextEncoding { Utf8, Latin1 };

/// "utf-8" or "latin-1". Throws InvalidArgument.
TextEncoding text_encoding(const std::string& name);

/// Cuts text into words as BERT's basic tokenizer does: control characters are dropped, blanks end
/// a word, each punctuation mark and each CJK ideograph is a word of its own. `lower_case`: letters
/// become small and lose their accents (NFD without marks). Source: Devlin et al. 2018,
/// tokenization.py; where its two implementations at Hugging Face differ, as the newer one.
class WordCutter {
 public:
  explicit WordCutter(bool lower_case) : lower_case_(lower_case) {}

  /// Calls word(UTF-8, characters) for each, until it returns false. Throws Io for bytes that are
  /// not UTF-8, with their place in the text, from 1.
  void each(std::string_view text, TextEncoding encoding,
            const std::function<bool(std::string_view word, int characters)>& word) const;

 private:
  bool lower_case_;
};

class WordPiece {
 public:
  /// A file of one token per line. Throws Io where it cannot be read, is no text, has a token
  /// twice, or lacks one of [PAD] [UNK] [CLS] [SEP] [MASK].
  WordPiece(const std::string& path, bool lower_case);

  std::int32_t size() const { return size_; }
  std::int32_t pad() const { return special_[0]; }
  std::int32_t unknown() const { return special_[1]; }
  std::int32_t cls() const { return special_[2]; }
  std::int32_t sep() const { return special_[3]; }
  std::int32_t mask() const { return special_[4]; }

  /// Appends the ids of the text's first `most` tokens: the longest pieces from the left; a word
  /// that cannot be spelt, or of more than 100 characters, is unknown(). What looks like [MASK] in
  /// a text is three words. Throws as WordCutter.
  void encode(std::string_view text, TextEncoding encoding, std::size_t most,
              std::vector<std::int32_t>& ids) const;

 private:
  void add(std::string_view token, std::int32_t id);
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  std::uint32_t make_child(std::uint32_t node, unsigned char byte);
  void grow();
  void spell(std::string_view word, std::vector<std::int32_t>& ids) const;

  // Nodes of two tries over bytes, for beginnings of words and for what follows (##); edges in one
  // open table.
  struct Edge {
    std::uint64_t key = 0;  // node * 256 + byte + 1; 0: free
    std::uint32_t to = 0;
  };
  static constexpr std::uint32_t kFirst = 0, kNext = 1, kNone = 0xFFFFFFFF;

  WordCutter cutter_;
  std::int32_t size_ = 0;
  std::int32_t special_[5] = {-1, -1, -1, -1, -1};
  std::vector<std::int32_t> tokens_;  // of nodes; -1: none ends there
  std::vector<Edge> edges_;
  std::size_t used_ = 0;
};

}  // namespace hetu
