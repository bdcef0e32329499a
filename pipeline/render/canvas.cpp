#include "pipeline/render/canvas.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace hetu {

void Canvas::put(int column, char c, const KindLook* look) {
  if (column < 0 || column >= static_cast<int>(text_.size())) return;
  text_[column] = c;
  looks_[column] = look;
}

void Canvas::block(int from, int to, std::string_view cell, const KindLook& look) {
  const std::size_t room = to > from ? to - from : 0;
  if (room == 0) return;
  std::string fitting(cell);
  if (fitting.size() > room) {
    const auto behind_stage = std::find_if_not(
        fitting.begin(), fitting.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    fitting.erase(fitting.begin(), behind_stage);
  }
  if (fitting.size() > room) fitting = std::string(1, look.letter);
  for (std::size_t i = 0; i < room; ++i) {
    if (i < fitting.size()) {
      put(from + static_cast<int>(i), fitting[i], &look);
    } else if (i + 1 < room) {
      put(from + static_cast<int>(i), '-', &look);
    } else {
      put(from + static_cast<int>(i), ' ', nullptr);
    }
  }
}

// Escape sequences are written only where the look changes.
std::string Canvas::text(bool color) const {
  if (!color) return text_;
  std::string out;
  const KindLook* now = nullptr;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (looks_[i] != now) {
      now = looks_[i];
      out += now ? fmt::format("\x1b[0;38;5;{};48;5;{}m", now->light_text ? 231 : 16, now->ansi)
                 : "\x1b[0m";
    }
    out += now && text_[i] == '-' ? ' ' : text_[i];
  }
  if (now) out += "\x1b[0m";
  return out;
}

std::string folded(const std::vector<std::string>& pieces, int columns) {
  std::string out;
  std::size_t line = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string piece = pieces[i] + (i + 1 < pieces.size() ? "," : "");
    if (line > 0 && line + 1 + piece.size() > static_cast<std::size_t>(columns)) {
      out += '\n';
      line = 0;
    }
    if (line > 0) out += ' ';
    line += piece.size() + (line > 0 ? 1 : 0);
    out += piece;
  }
  return out + '\n';
}

std::string pointer_line(int from, int to, std::size_t number, int columns) {
  const std::string tag = std::to_string(number);
  const int width = std::max(1, to - from);
  const int room = columns - static_cast<int>(tag.size());
  const int at = std::clamp(from, 0, std::max(0, room - 1));
  return std::string(at, ' ') + std::string(std::min(width, std::max(1, room - at)), '^') + tag +
         '\n';
}

std::string mark_texts(const std::vector<Mark>& marks) {
  std::string out;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    out += fmt::format("^{} worker {}: {}\n", i + 1, marks[i].worker, marks[i].text);
  }
  return out;
}

void check_grid(const GridOptions& options, int workers) {
  require(options.columns >= 20, "a grid needs at least 20 columns, got {}", options.columns);
  for (const Mark& mark : options.marks) {
    require(mark.worker >= 0 && mark.worker < workers,
            "mark: there is no worker {}; the grid has workers 0 to {}", mark.worker, workers - 1);
  }
}

std::string prefix_of(int worker, int workers) {
  return fmt::format("w{:<{}} ", worker, std::to_string(std::max(0, workers - 1)).size());
}

}  // namespace hetu
