// Characters and backgrounds of a text row, and the lines around a text grid. Read by the text
// renderers only.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/render/palette.h"
#include "pipeline/render/render.h"

namespace hetu {

/// A row of terminal cells.
class Canvas {
 public:
  Canvas(int columns, char blank) : text_(columns, blank), looks_(columns, nullptr) {}
  /// Writes a character. Ignores columns outside the row. A null look has no background.
  void put(int column, char c, const KindLook* look);
  /// Writes `cell` into columns [from, to) and fills the remainder with dashes. If there is space,
  /// a blank column ends the block. A cell that is too long loses its stage, and then shrinks to
  /// the kind's letter.
  void block(int from, int to, std::string_view cell, const KindLook& look);
  /// Returns the row. With `color` it has ANSI backgrounds, and dashes become spaces.
  std::string text(bool color) const;

 private:
  std::string text_;
  std::vector<const KindLook*> looks_;
};

/// Joins the pieces with ", " and breaks the line before a piece that would exceed `columns`. Ends
/// with a newline.
std::string folded(const std::vector<std::string>& pieces, int columns);

/// Returns a line with carets under columns [from, to), followed by a number, within `columns`.
std::string pointer_line(int from, int to, std::size_t number, int columns);

/// Returns the numbered texts of marks, one line each.
std::string mark_texts(const std::vector<Mark>& marks);

/// Returns the row prefix "w3 ", padded to the same width for all workers.
std::string prefix_of(int worker, int workers);

/// Checks the options. Throws InvalidArgument for fewer than 20 columns, or a mark on a worker that
/// doesn't exist.
void check_grid(const GridOptions& options, int workers);

}  // namespace hetu
