#include "pipeline/planner/megatron_layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/words.h"

namespace hetu {
namespace {

constexpr std::size_t kMostLetters = 1 << 16;
const std::string kLetters = "EtmL";

bool is_digit(const std::string& text, std::size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

// Expands the repetitions of a layout in one pass. A part in parentheses has no parentheses inside.
class Expansion {
 public:
  explicit Expansion(const std::string& text) : given_(text) {
    for (const char c : text)
      if (c != ',') text_ += c;
  }

  std::string run() {
    const std::string all = part(false);
    if (at_ < text_.size()) fault("')' without '('");
    return all;
  }

 private:
  [[noreturn]] void fault(const std::string& what) const {
    fail(Code::InvalidArgument,
         "layout '{}': {}; expected stages of E, t, m and L between '|', such as Et*3|t*4|t*3L",
         shortened(given_), what);
  }

  // Returns the text up to the end or to a ')'.
  std::string part(bool inside) {
    std::string out;
    while (at_ < text_.size() && text_[at_] != ')') {
      std::string one;
      if (text_[at_] == '(') {
        if (inside) fault("'(' within '(' is not a form of Megatron-LM");
        ++at_;
        one = part(true);
        if (at_ == text_.size()) fault("'(' without ')'");
        ++at_;
        if (at_ == text_.size() || text_[at_] != '*') fault("')' needs '*' and a number");
      } else {
        const char c = text_[at_++];
        if (c != '|' && kLetters.find(c) == std::string::npos)
          fault(fmt::format("unknown letter '{}'", c));
        one = std::string(1, c);
      }
      repeat(one, out);
    }
    return out;
  }

  // Appends a letter or a part as often as the number after it says.
  void repeat(const std::string& one, std::string& out) {
    std::size_t times = 1;
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      if (!is_digit(text_, at_)) fault("'*' needs a number after it");
      for (times = 0; is_digit(text_, at_) && times <= kMostLetters; ++at_)
        times = times * 10 + static_cast<std::size_t>(text_[at_] - '0');
    }
    if (times > kMostLetters || out.size() + one.size() * times > kMostLetters)
      fault(fmt::format("more than {} letters", kMostLetters));
    for (std::size_t i = 0; i < times; ++i) out += one;
  }

  const std::string& given_;
  std::string text_;
  std::size_t at_ = 0;
};

// Returns the parts between separators, also the last one if it is empty.
std::vector<std::string> stages_of(const std::string& text) {
  std::vector<std::string> stages(1);
  for (const char c : text) {
    if (c == '|')
      stages.emplace_back();
    else
      stages.back() += c;
  }
  return stages;
}

int count(const std::string& letters, char letter) {
  return static_cast<int>(std::count(letters.begin(), letters.end(), letter));
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

}  // namespace

MegatronLayout parse_megatron_layout(const std::string& text) {
  MegatronLayout layout = stages_of(Expansion(text).run());
  const std::string all = joined(layout);
  for (std::size_t s = 0; s < layout.size(); ++s)
    require(!layout[s].empty(),
            "layout '{}': stage {} of {} is empty; a stage needs a block here, as in Et*3|t*4L",
            shortened(text), s, layout.size());
  require(count(all, 'E') == 1 && all.front() == 'E',
          "layout '{}': expected one E, at the beginning", shortened(text));
  require(count(all, 'L') == 1 && all.back() == 'L', "layout '{}': expected one L, at the end",
          shortened(text));
  return layout;
}

std::string to_text(const MegatronLayout& layout) {
  std::string text;
  for (std::size_t s = 0; s < layout.size(); ++s) {
    const std::string& letters = layout[s];
    if (s > 0) text += '|';
    for (std::size_t i = 0; i < letters.size();) {
      const std::size_t end = std::min(letters.find_first_not_of(letters[i], i), letters.size());
      text += end - i < 3 ? letters.substr(i, end - i) : fmt::format("{}*{}", letters[i], end - i);
      i = end;
    }
  }
  return text;
}

MegatronLayout layout_of(const ModelBlocks& blocks, const std::vector<int>& first_block) {
  MegatronLayout layout;
  for (std::size_t s = 0; s < first_block.size(); ++s) {
    const int end =
        s + 1 < first_block.size() ? first_block[s + 1] : static_cast<int>(blocks.size());
    layout.push_back(joined({blocks.begin() + first_block[s], blocks.begin() + end}));
  }
  return layout;
}

std::vector<int> first_blocks_of(const MegatronLayout& layout, const ModelBlocks& blocks) {
  const std::string theirs = joined(layout), ours = joined(blocks);
  for (const auto& [letter, name] : {std::pair('t', "transformer layers (t)"),
                                     std::pair('m', "layers of multi-token prediction (m)")})
    require(count(theirs, letter) == count(ours, letter),
            "layout '{}': it has {} {}, but the costs have {}; --blocks-are states what the blocks "
            "of the costs are",
            shortened(to_text(layout)), count(theirs, letter), name, count(ours, letter));
  require(theirs == ours, "layout '{}': layers of multi-token prediction (m) follow all others (t)",
          shortened(to_text(layout)));
  std::vector<int> first;
  std::size_t block = 0, letters = 0, begin = 0;  // letters before the block, and before the stage
  for (std::size_t s = 0; s < layout.size(); ++s) {
    while (letters < begin) letters += blocks[block++].size();
    require(letters == begin,
            "layout '{}': stage {} begins within block {} of the costs, which is '{}'; state other "
            "blocks with --blocks-are, or move the cut",
            shortened(to_text(layout)), s, block - 1, blocks[block - 1]);
    first.push_back(static_cast<int>(block));
    begin += layout[s].size();
  }
  return first;
}

}  // namespace hetu
