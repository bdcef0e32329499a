// Characters and backgrounds of one text row, and the lines around a text grid. Read by the text
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
  /// Puts a character; outside the row it is dropped. A null look has no background.
  void put(int column, char c, const KindLook* look);
  /// Writes `cell` into [from, to), filled up with dashes; one blank column ends it where there is
  /// room. Cells longer than their place shrink to the part behind the stage, then to the kind's
  /// letter.
  void block(int from, int to, std::string_view cell, const KindLook& look);
  /// The row; with ANSI backgrounds if `color`, in which case dashes become spaces.
  std::string text(bool color) const;

 private:
  std::string text_;
  std::vector<const KindLook*> looks_;
};

/// Joins the pieces by ", ", breaking lines before a piece that would pass `columns`. Ends with a
/// newline.
std::string folded(const std::vector<std::string>& pieces, int columns);

/// A line that points up at [from, to) with carets and a number behind them, within `columns`.
std::string pointer_line(int from, int to, std::size_t number, int columns);

/// The numbered texts of marks, one line each.
std::string mark_texts(const std::vector<Mark>& marks);

/// "w3 ", as wide for every worker.
std::string prefix_of(int worker, int workers);

/// Throws InvalidArgument: fewer than 20 columns, a mark on a worker that is not there.
void check_grid(const GridOptions& options, int workers);

}  // namespace hetu
