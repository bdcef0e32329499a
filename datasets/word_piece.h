// Splits text into the tokens of a WordPiece vocabulary, as BERT does. Used by bert_text.cpp, by
// the training of vocabularies and by python/.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// The encoding of a text's characters as bytes.
enum class TextEncoding { Utf8, Latin1 };

/// Parses "utf-8" or "latin-1". Throws InvalidArgument.
TextEncoding text_encoding(const std::string& name);

/// A splitter of text into words that follows BERT's basic tokenizer. Control characters are
/// dropped, blanks end a word, and each punctuation mark and each CJK ideograph is a word of its
/// own. With `lower_case`, letters become lower case and lose their accents (NFD without marks).
/// Source: Devlin et al. 2018, tokenization.py. Where Hugging Face's two implementations differ,
/// this follows the newer one.
class WordCutter {
 public:
  explicit WordCutter(bool lower_case) : lower_case_(lower_case) {}

  /// Calls word(UTF-8 text, number of characters) for each word, until it returns false. Throws Io
  /// for bytes that are not UTF-8, with their position in the text, from 1.
  void each(std::string_view text, TextEncoding encoding,
            const std::function<bool(std::string_view word, int characters)>& word) const;

 private:
  bool lower_case_;
};

/// A WordPiece vocabulary, which splits words into its tokens.
class WordPiece {
 public:
  /// Reads a vocabulary with one token per line. Throws Io if the file cannot be read, is not a
  /// text, contains a token twice, or lacks one of [PAD] [UNK] [CLS] [SEP] [MASK].
  WordPiece(const std::string& path, bool lower_case);

  std::int32_t size() const { return size_; }
  std::int32_t pad() const { return special_[0]; }
  std::int32_t unknown() const { return special_[1]; }
  std::int32_t cls() const { return special_[2]; }
  std::int32_t sep() const { return special_[3]; }
  std::int32_t mask() const { return special_[4]; }

  /// Appends the ids of the text's first `most` tokens. Each word is split from the left into the
  /// longest known pieces. A word that cannot be split this way, or has more than 100 characters,
  /// becomes unknown(). The text "[MASK]" is three words, not the special token. Throws as
  /// WordCutter.
  void encode(std::string_view text, TextEncoding encoding, std::size_t most,
              std::vector<std::int32_t>& ids) const;

 private:
  void add(std::string_view token, std::int32_t id);
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  std::uint32_t make_child(std::uint32_t node, unsigned char byte);
  void grow();
  void spell(std::string_view word, std::vector<std::int32_t>& ids) const;

  // Two tries over bytes, rooted at kFirst for beginnings of words and at kNext for continuations
  // (##). All edges are in one hash table with open addressing.
  struct Edge {
    std::uint64_t key = 0;  // node * 256 + byte + 1; 0: free
    std::uint32_t to = 0;
  };
  static constexpr std::uint32_t kFirst = 0, kNext = 1, kNone = 0xFFFFFFFF;

  WordCutter cutter_;
  std::int32_t size_ = 0;
  std::int32_t special_[5] = {-1, -1, -1, -1, -1};
  std::vector<std::int32_t> tokens_;  // token that ends at each node; -1: none
  std::vector<Edge> edges_;
  std::size_t used_ = 0;
};

}  // namespace hetu
