#include "pipeline/planner/model_blocks.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/words.h"

namespace hetu {
namespace {

struct Word {
  const char* name;
  const char* letter;
  bool counts;  // may have a number of blocks
};

constexpr std::array<Word, 4> kWords = {
    {{"embedding", "E", false}, {"layers", "t", true}, {"mtp", "m", true}, {"head", "L", false}}};

constexpr int kMostBlocks = 1 << 16;

// An item of the list: the index of its word, and its number of blocks, 0 if the item has none.
struct Item {
  std::size_t word = 0;
  int count = 0;
};

Item item_of(const std::string& part, const std::string& flag, const std::string& text) {
  const std::size_t star = part.find('*');
  const std::string name = part.substr(0, star);
  const auto* const word =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return name == w.name; });
  require(word != kWords.end(),
          "{} {}: '{}' is not a kind of block; expected embedding, layers, mtp or head, such as "
          "embedding,layers,head",
          flag, shortened(text), shortened(name));
  Item item{static_cast<std::size_t>(word - kWords.begin()), 0};
  if (star == std::string::npos) return item;
  require(word->counts, "{} {}: a model has one {}; remove '{}'", flag, shortened(text), name,
          shortened(part.substr(star)));
  try {
    item.count = static_cast<int>(to_integer(part.substr(star + 1), 1, kMostBlocks));
  } catch (const Error& e) {
    fail(Code::InvalidArgument, "{} {}: '{}': {}", flag, shortened(text), shortened(part),
         e.what());
  }
  return item;
}

}  // namespace

ModelBlocks parse_model_blocks(const std::string& text, int blocks, const std::string& flag) {
  std::vector<Item> items;
  for (const std::string& part : split(text, ',')) {
    items.push_back(item_of(part, flag, text));
    require(items.size() == 1 || items[items.size() - 2].word < items.back().word,
            "{} {}: expected embedding, layers, mtp and head in this order, each at most once",
            flag, shortened(text));
  }
  const auto layers =
      std::find_if(items.begin(), items.end(), [](const Item& i) { return i.word == 1; });
  require(layers != items.end(), "{} {}: a transformer has layers; add 'layers'", flag,
          shortened(text));
  int others = 0;
  for (const Item& i : items)
    if (&i != &*layers) others += std::max(1, i.count);
  if (layers->count == 0) layers->count = blocks - others;
  require(layers->count >= 1 && layers->count + others == blocks,
          "{} {}: this describes {} blocks, but the costs have {}", flag, shortened(text),
          std::max(1, layers->count) + others, blocks);
  ModelBlocks result;
  for (const Item& i : items)
    result.insert(result.end(), std::max(1, i.count), kWords[i.word].letter);
  if (result.front() != "E") result.front().insert(0, "E");
  if (result.back() != "L") result.back() += "L";
  return result;
}

int count_of(const ModelBlocks& blocks, char letter) {
  int count = 0;
  for (const std::string& b : blocks)
    count += static_cast<int>(std::count(b.begin(), b.end(), letter));
  return count;
}

}  // namespace hetu
