// Damped inverses of Kronecker factors in float64, tile by tile, and gradients multiplied by them.
//
// M = L L^T is eliminated by columns of tiles. The row operations on M are also applied to the
// identity, which becomes L^-1. One matrix stores both: at step k the columns up to k hold the
// lower triangle of L^-1, the columns after k that of the remaining M. Finally M^-1 = L^-T L^-1.
//
// Each step k has three launches:
//   1. The tile of the diagonal is replaced by the inverse of its L.
//   2. The tiles of column k below it become tiles of L, which are stored apart. The tiles of row k
//      left of it are multiplied by the inverse.
//   3. All tiles below row k are updated.
// Example with 2 x 2 tiles: step 0 replaces tile (0, 0) by L00^-1, computes L10 = M10 L00^-T, and
// updates tile (1, 0) to -L10 L00^-1 and tile (1, 1) to M11 - L10 L10^T. Step 1 replaces tile
// (1, 1) by L11^-1 and multiplies tile (1, 0) by it, which completes L^-1.
//
// The order of additions depends only on the side.
// Source: Golub, Van Loan 2013, Matrix Computations, section 4.2 (outer product Cholesky).
#include <block.h>

#include <array>
#include <map>
#include <memory>

#include "ops/cuda/factor_tiles.h"
#include "ops/cuda/kronecker.h"
#include "ops/cuda/product.h"
#include "ops/cuda/sums.h"
#include "ops/factor_damping.h"

namespace hetu::cuda {
namespace {

constexpr int kSide = kFactorTile, kDepth = kFactorDepth;
constexpr int kStep = tile_step<double>(kSide);  // for tiles in shared memory

struct DiagonalOf {
  const float* factor;
  std::int64_t side;
  double scale;
  HETU_HD double operator()(std::int64_t i) const { return scale * double(factor[i * side + i]); }
};

/// A square matrix of whole tiles.
struct Tiles {
  double* data;
  std::int64_t side;  ///< elements
  HETU_HD double* at(std::int64_t row, std::int64_t column) const {
    return data + (row * side + column) * kSide;
  }
};

/// A body that computes the lower triangle of scale * factor + damping, in whole tiles.
struct DampOf {
  const float* factor;
  std::int64_t side;
  double scale, damping;
  const double* means;  ///< means of both factors' diagonals
  bool is_input;
  Tiles to;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t row = i / to.side, column = i % to.side;
    if (column > row) return;
    double value = row < side ? scale * double(factor[row * side + column]) : 0.0;
    if (row == column) {
      const FactorDamping more = damping_of(means[0], means[1], damping);
      value = row < side ? value + (is_input ? more.input : more.gradient) : 1.0;
    }
    to.data[i] = value;
  }
};

/// A body that replaces tile k of the diagonal by the inverse of its L, with zeros above its own
/// diagonal. One block runs the same elimination as the whole: row p is divided by its pivot and
/// subtracted from the rows below.
struct InvertDiagonal {
  Tiles m;
  std::int64_t k;

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const DiagonalRoom at = diagonal_room();
    auto* const tile = block.template shared<double>(at.tile);
    auto* const column = block.template shared<double>(at.column);
    double* const kept = m.at(k, k);
    const std::int64_t across = m.side;
    block.each(kSide * kSide, [=](int t) {
      const int i = t / kSide, j = t % kSide;
      tile[i * kStep + j] = j <= i ? kept[i * across + j] : 0.0;
    });
    for (int p = 0; p < kSide; ++p) {
      double* const row = tile + p * kStep;
      block.each(kSide, [=](int i) {
        const double pivot = std::sqrt(row[p]);
        column[i] = i == p ? 1 / pivot : tile[i * kStep + p] / pivot;
        if (i < p) row[i] /= pivot;
      });
      block.each((kSide - p) * kSide, [=](int t) {
        const int i = p + t / kSide, j = t % kSide;
        double& value = tile[i * kStep + j];
        if (j == p) value = i == p ? column[p] : -column[i] * column[p];
        if (i > p && j <= i && j != p) value -= column[i] * (j > p ? column[j] : row[j]);
      });
    }
    block.each(kSide * kSide, [=](int t) {
      const int i = t / kSide, j = t % kSide;
      kept[i * across + j] = tile[i * kStep + j];
    });
  }
};

/// A tile as an operand of a product, with the distance of its rows in memory.
struct Operand {
  const double* at;
  std::int64_t step;
  bool by_depth;  ///< true: a row per step of the depth
};

/// Operations of blocks that multiply tiles.
struct TileWork {
  template <class Block>
  HETU_HD static double* product(const Block& block) {
    return block.template shared<double>(factor_room().product);
  }

  /// Computes the block's product = left right, added to it if `adds`.
  template <class Block>
  HETU_HD static void multiply(const Block& block, const Operand& left, const Operand& right,
                               bool adds) {
    auto* const a = block.template shared<double>(factor_room().left);
    auto* const b = block.template shared<double>(factor_room().right);
    for (int depth = 0; depth < kSide; depth += kDepth) {
      load(block, left, depth, a);
      load(block, right, depth, b);
      block.multiply(Tile<double>{a, step(left), left.by_depth},
                     Tile<double>{b, step(right), !right.by_depth}, product(block), kStep, kSide,
                     kSide, kDepth, adds || depth > 0);
    }
  }

  /// Stores sign * the block's product.
  template <class Block>
  HETU_HD static void store(const Block& block, double sign, double* to, std::int64_t across) {
    const double* const made = product(block);
    block.each(kSide * kSide, [=](int t) {
      to[t / kSide * across + t % kSide] = sign * made[t / kSide * kStep + t % kSide];
    });
  }

 private:
  HETU_HD static int columns(const Operand& o) { return o.by_depth ? kSide : kDepth; }
  HETU_HD static int step(const Operand& o) { return tile_step<double>(columns(o)); }
  template <class Block>
  HETU_HD static void load(const Block& block, const Operand& o, int depth, double* to) {
    const double* const from = o.at + (o.by_depth ? depth * o.step : depth);
    const std::int64_t across = o.step;
    const int wide = columns(o), to_step = step(o);
    block.each(kSide * kDepth, [=](int t) {
      to[t / wide * to_step + t % wide] = from[t / wide * across + t % wide];
    });
  }
};

/// Launch 2 of a step, one block per tile. Blocks below k multiply a tile of row k, left of the
/// diagonal, by the inverse. The others compute a tile of L below the diagonal and store it in
/// `below`.
struct ScaleRowAndColumn : TileWork {
  Tiles m;
  double* below;
  std::int64_t k;

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const std::int64_t t = block.index();
    if (t < k) {
      multiply(block, {m.at(k, k), m.side, false}, {m.at(k, t), m.side, true}, false);
      store(block, 1, m.at(k, t), m.side);
    } else {
      const std::int64_t i = t + 1;
      multiply(block, {m.at(i, k), m.side, false}, {m.at(k, k), m.side, false}, false);
      store(block, 1, below + i * kSide * kSide, kSide);
    }
  }
};

/// Launch 3 of a step, one block per tile of the rows below k: subtracts (L of its row) times (row
/// k).
struct EliminateBelow : TileWork {
  Tiles m;
  const double* below;
  std::int64_t k;

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const TilePosition at = position_in_triangle(tiles_above(k + 1) + block.index());
    const Operand factor{below + at.row * kSide * kSide, kSide, false};
    const Operand of_l{below + at.column * kSide * kSide, kSide, false};
    const Operand of_inverse{m.at(k, at.column), m.side, true};
    double* const kept = m.at(at.row, at.column);
    double* const made = product(block);
    const std::int64_t across = m.side;
    const bool begins = at.column == k;  // the identity is zero there
    if (!begins)
      block.each(kSide * kSide, [=](int t) {
        made[t / kSide * kStep + t % kSide] = -kept[t / kSide * across + t % kSide];
      });
    multiply(block, factor, at.column > k ? of_l : of_inverse, !begins);
    store(block, -1, kept, across);
  }
};

/// A body that computes a tile of the lower triangle of L^-T L^-1, one block each, and writes it on
/// both sides of the diagonal.
struct MultiplyTriangles : TileWork {
  Tiles m;
  float* to;
  std::int64_t side;

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const TilePosition at = position_in_triangle(block.index());
    for (std::int64_t l = at.row; l < m.side / kSide; ++l)
      multiply(block, {m.at(l, at.row), m.side, true}, {m.at(l, at.column), m.side, true},
               l > at.row);
    const double* const made = product(block);
    float* const out = to;
    const std::int64_t n = side, top = at.row * kSide, left = at.column * kSide;
    block.each(kSide * kSide, [=](int t) {
      const std::int64_t i = top + t / kSide, j = left + t % kSide;
      if (i >= n || j > i) return;
      const auto value = static_cast<float>(made[t / kSide * kStep + t % kSide]);
      out[i * n + j] = value;
      out[j * n + i] = value;
    });
  }
};

/// Inverts the matrix at the start of `scratch`.
void invert(std::int64_t side, float* to, void* scratch) {
  const std::int64_t tiles = factor_tiles(side);
  const Tiles m{static_cast<double*>(scratch), tiles * kSide};
  double* const below = m.data + m.side * m.side;
  for (std::int64_t k = 0; k < tiles; ++k) {
    for_blocks(1, diagonal_room().bytes, InvertDiagonal{m, k});
    for_blocks(tiles - 1, factor_room().bytes, ScaleRowAndColumn{{}, m, below, k});
    for_blocks(tiles_above(tiles) - tiles_above(k + 1), factor_room().bytes,
               EliminateBelow{{}, m, below, k});
  }
  for_blocks(tiles_above(tiles), factor_room().bytes, MultiplyTriangles{{}, m, to, side});
}

/// Cache of float32 products by their sides, which are known only when a gradient arrives.
class Products {
 public:
  /// Returns the product C [m, n] = A [m, k] B [k, n].
  const Product& of(std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto found = made_.find({m, n, k});
    if (found != made_.end()) return found->second;
    return made_.emplace(Sides{m, n, k}, Product({1, m, n, k}, DType::Float32)).first->second;
  }

 private:
  using Sides = std::array<std::int64_t, 3>;
  std::map<Sides, Product> made_;
};

Products& products() {
  std::shared_ptr<void>& kept = kernel_context().products;
  if (!kept) kept = std::make_shared<Products>();
  return *static_cast<Products*>(kept.get());
}

}  // namespace

void invert_factors(const KroneckerCall& c) {
  auto* const means = static_cast<double*>(kernel_context().workspace);
  double* const parts = means + 2;
  sum_of(c.inputs, DiagonalOf{c.input_sum, c.inputs, c.input_scale / double(c.inputs)}, parts,
         means);
  sum_of(c.outputs, DiagonalOf{c.gradient_sum, c.outputs, c.gradient_scale / double(c.outputs)},
         parts, means + 1);
  const auto inverse_of = [&](const float* sum, std::int64_t side, double scale, bool is_input,
                              float* to) {
    if (to == nullptr) return;
    const Tiles m{static_cast<double*>(c.scratch), factor_tiles(side) * kSide};
    for_each(m.side * m.side, DampOf{sum, side, scale, c.damping, means, is_input, m});
    invert(side, to, c.scratch);
  };
  inverse_of(c.input_sum, c.inputs, c.input_scale, true, c.input_inverse);
  inverse_of(c.gradient_sum, c.outputs, c.gradient_scale, false, c.gradient_inverse);
}

void precondition(float* gradient, std::int64_t rows, std::int64_t columns,
                  const float* gradient_inverse, const float* input_inverse, void* scratch) {
  auto* const half = static_cast<float*>(scratch);
  products().of(rows, columns, rows)(gradient_inverse, gradient, nullptr, half);
  if (input_inverse == nullptr)
    copy(gradient, half, rows * columns * std::int64_t{sizeof(float)});
  else
    products().of(rows, columns, columns)(half, input_inverse, nullptr, gradient);
}

std::int64_t factor_scratch(std::int64_t inputs, std::int64_t outputs) {
  const std::int64_t gradient = (inputs * outputs * std::int64_t{sizeof(float)} + 63) / 64 * 64;
  return std::max(inversion_bytes(std::max(inputs, outputs)), gradient);
}

}  // namespace hetu::cuda
