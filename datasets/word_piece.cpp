// Greedy longest-match tokenization, as in BERT's WordpieceTokenizer. A vocabulary has tokens that
// begin a word ("play") and tokens that continue it ("##ing"). From the left, the longest matching
// token is taken, then the longest continuation, and so on: "playing" becomes "play" "##ing". If no
// token matches at some position, the whole word becomes [UNK].
//
// The tokens form two tries over bytes, so finding the longest match at a position takes one pass.
#include "datasets/word_piece.h"

#include <array>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/mix.h"
#include "base/text_file.h"

namespace hetu {
namespace {

constexpr std::array<const char*, 5> kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr int kLongestWord = 100;                            // characters
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // begins some UTF-8 files

}  // namespace

WordPiece::WordPiece(const std::string& path, bool lower_case)
    : cutter_(lower_case), tokens_(2, -1), edges_(std::size_t{1} << 12) {
  std::istringstream file(read_text(path));
  for (std::string line; std::getline(file, line); ++size_) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (size_ == 0 && line.rfind(kByteOrderMark, 0) == 0) line.erase(0, kByteOrderMark.size());
    if (line.find('\0') != std::string::npos) {
      fail(Code::Io, "{}:{}: not a text file; expected one token per line", path, size_ + 1);
    }
    for (std::size_t s = 0; s < kSpecial.size(); ++s)
      if (line == kSpecial[s]) special_[s] = size_;
    const bool is_next = line.rfind("##", 0) == 0 && line.size() > 2;
    std::uint32_t node = is_next ? kNext : kFirst;
    for (const char c : is_next ? std::string_view(line).substr(2) : std::string_view(line))
      node = make_child(node, static_cast<unsigned char>(c));
    if (node > kNext && tokens_[node] >= 0) {
      fail(Code::Io, "{}:{}: token '{}' is a duplicate of line {}", path, size_ + 1, line,
           tokens_[node] + 1);
    }
    if (node > kNext) tokens_[node] = size_;
  }
  for (std::size_t s = 0; s < kSpecial.size(); ++s) {
    if (special_[s] >= 0) continue;
    fail(Code::Io,
         "{}: none of the {} tokens is {}; expected BERT's vocab.txt, one token per line (hetu "
         "data vocabulary builds one from your text)",
         path, size_, kSpecial[s]);
  }
}

std::uint32_t WordPiece::child(std::uint32_t node, unsigned char byte) const {
  const std::uint64_t key = (std::uint64_t{node} << 8) + byte + 1;
  const std::size_t last = edges_.size() - 1;
  for (std::size_t at = mix(key) & last;; at = (at + 1) & last) {
    if (edges_[at].key == key) return edges_[at].to;
    if (edges_[at].key == 0) return kNone;
  }
}

std::uint32_t WordPiece::make_child(std::uint32_t node, unsigned char byte) {
  const std::uint32_t found = child(node, byte);
  if (found != kNone) return found;
  if (2 * ++used_ > edges_.size()) grow();
  const std::uint64_t key = (std::uint64_t{node} << 8) + byte + 1;
  std::size_t at = mix(key) & (edges_.size() - 1);
  while (edges_[at].key != 0) at = (at + 1) & (edges_.size() - 1);
  edges_[at] = {key, static_cast<std::uint32_t>(tokens_.size())};
  tokens_.push_back(-1);
  return edges_[at].to;
}

void WordPiece::grow() {
  std::vector<Edge> larger(edges_.size() * 4);
  for (const Edge& edge : edges_) {
    if (edge.key == 0) continue;
    std::size_t at = mix(edge.key) & (larger.size() - 1);
    while (larger[at].key != 0) at = (at + 1) & (larger.size() - 1);
    larger[at] = edge;
  }
  edges_ = std::move(larger);
}

void WordPiece::spell(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  for (std::size_t begin = 0; begin < word.size();) {
    std::uint32_t node = begin == 0 ? kFirst : kNext;
    std::int32_t longest = -1;
    std::size_t end = begin;
    for (std::size_t at = begin; at < word.size(); ++at) {
      node = child(node, static_cast<unsigned char>(word[at]));
      if (node == kNone) break;
      if (tokens_[node] < 0) continue;
      longest = tokens_[node];
      end = at + 1;
    }
    if (longest < 0) {
      ids.resize(before);
      ids.push_back(unknown());
      return;
    }
    ids.push_back(longest);
    begin = end;
  }
}

void WordPiece::encode(std::string_view text, TextEncoding encoding, std::size_t most,
                       std::vector<std::int32_t>& ids) const {
  const std::size_t end = ids.size() + most;
  cutter_.each(text, encoding, [&](std::string_view word, int characters) {
    if (characters > kLongestWord)
      ids.push_back(unknown());
    else
      spell(word, ids);
    return ids.size() < end;
  });
  if (ids.size() > end) ids.resize(end);
}

}  // namespace hetu
