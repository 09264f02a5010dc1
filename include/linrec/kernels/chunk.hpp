// The chunked form of the law: a few tokens at once, as small matrix products.
//
// Let S_0 be the state before the chunk, W_i the product of the decays of its tokens 1 to i, and y_i = S_{i-1}^T a_i.
// Unrolled, the law of law.hpp says
//
//   y_i = (W_{i-1} a_i)^T S_0 + sum_{j<i} (a_i W_{i-1}/W_j b_j) y_j + (a_i W_{i-1}/W_j k_j) v_j
//   o_i = (W_i q_i)^T S_0     + sum_{j<=i} (q_i W_i/W_j b_j) y_j + (q_i W_i/W_j k_j) v_j
//   S_C = W_C S_0             + sum_j (W_C/W_j b_j) y_j^T + (W_C/W_j k_j) v_j^T
//
// The numbers in brackets do not depend on the panel: they are computed once for a head. The first line is solved by
// forward substitution. Along the key, b_j = c_j k_j, the two terms are one: u_j = v_j + c_j y_j takes the place of v_j.
//
// Ratios of decays. Per head they are products of the decays between two tokens, never quotients or differences of
// sums, so that hard resets and enormous decays are exact. Per channel they are factored as W_i times 1/W_j, which is
// as accurate as long as 1/W_C stays far from overflow; a chunk with stronger decays is left to the panel scan.
#pragma once

#include <array>

#include "linrec/kernels/micro_kernel.hpp"
#include "linrec/kernels/panel_scan.hpp"

namespace linrec::detail {

/// What all panels of a head share in a chunk, in memory of the caller.
template <Law law, class Scalar>
class Chunk {
  using L = Lanes<Scalar>;
  using Packet = typename L::Packet;
  static constexpr bool per_head = law.decay == Decay::per_head;
  static constexpr bool per_channel = law.decay == Decay::per_channel;
  static constexpr bool corrected = law.correction != Correction::none;
  static constexpr bool rank_one = law.correction == Correction::rank_one;

 public:
  /// Tokens of a chunk. The work inside a chunk grows with it, and a correction of rank one has twice as much.
  static constexpr Index tokens = rank_one ? block_tokens / 2 : block_tokens;
  /// Of the packed rows: a column a token for q, and behind them for a.
  static constexpr Index columns = corrected ? 2 * tokens : tokens;
  static constexpr Index a_column = tokens;

  static constexpr Index widest = strip_width<Scalar> * L::size;

  /// Numbers of memory, on a cache line.
  static Index memory_size(Index key) {
    const Index row = padded<Scalar>(key);
    constexpr Index sums = rank_one ? 2 : 1;
    return row * (columns + sums * tokens + 1) + (1 + sums) * tokens * columns + sums * tokens * widest;
  }

  Chunk(Scalar* memory, Index key) : key_(key), stride_(padded<Scalar>(key)) {
    const auto take = [&](Index n) {
      Scalar* part = memory;
      memory += n;
      return part;
    };
    packed_ = take(stride_ * columns);
    keys_ = take(stride_ * tokens);
    if constexpr (rank_one) b_ = take(stride_ * tokens);
    decayed_ = take(stride_);
    key_products_ = take(tokens * columns);
    key_factors_ = take(tokens * columns);
    values = take(tokens * widest);
    if constexpr (rank_one) {
      b_factors_ = take(tokens * columns);
      reads = take(tokens * widest);
    }
  }

  /// For a strip: v or u, and y, [tokens, columns of the strip].
  Scalar *values, *reads = nullptr;

  /// Computes what all panels share, for n tokens of a block from `first` on. Returns false, and has done nothing
  /// that matters, if the decays are too strong.
  EIGEN_DONT_INLINE bool prepare(const Block<Scalar>& block, Index first, Index n) noexcept {
    terms_ = &block[first];
    n_ = n;
    if constexpr (per_channel)
      if (!accumulate_decays()) return false;
    if (!packed_already(block)) {
      pack();
      multiply(keys_, key_products_);
      if constexpr (rank_one) multiply(b_, b_factors_);
    }
    if constexpr (per_head) {
      set_ratios();
      decay_products(key_products_, key_factors_);
      if constexpr (rank_one) decay_products(b_factors_, b_factors_);
    }
    return true;
  }

  const Terms<Scalar>& operator[](Index i) const { return terms_[i]; }
  Index count() const { return n_; }
  Index key() const { return key_; }

  /// q or a of the tokens from one on, for reading the state.
  PackedLeft<Scalar> reading(Index column) const { return {packed_ + column, columns}; }
  /// The numbers in brackets, with k_j and with b_j in the sums: row i at step j.
  PackedLeft<Scalar> key_factors(Index column) const {
    return {(per_head ? key_factors_ : key_products_) + column, columns};
  }
  PackedLeft<Scalar> b_factors(Index column) const { return {b_factors_ + column, columns}; }
  /// k_j and b_j for writing the state, from channel c on; per channel, divided by W_j.
  PackedLeft<Scalar> keys(Index c) const { return {keys_ + c, stride_}; }
  PackedLeft<Scalar> b(Index c) const { return {b_ + c, stride_}; }

  /// Per head: W_i, W_{i-1}, W_C / W_i.
  Scalar from_start(Index i) const { return from_start_[static_cast<std::size_t>(i + 1)]; }
  Scalar before(Index i) const { return from_start_[static_cast<std::size_t>(i)]; }
  Scalar to_end(Index i) const { return to_end_[static_cast<std::size_t>(i)]; }
  /// W_C: per head, and for channel c.
  Scalar whole() const { return from_start(n_ - 1); }
  Scalar whole(Index c) const { return decayed_[c]; }

 private:
  /// 1 / W_C may be as large as the reciprocal of this: far from overflow, as are keys that are multiplied by it.
  static constexpr Scalar smallest_decay = static_cast<Scalar>(sizeof(Scalar) == 4 ? 1e-18 : 1e-150);

  /// A cache line of a row of K numbers, from channel c on; what lies beyond K is `fill`.
  EIGEN_ALWAYS_INLINE L line_of(const Scalar* row, Index c, Scalar fill = 0) const {
    if (c + L::size <= key_) return L::load(row + c);
    alignas(cache_line) Scalar line[cache_line / sizeof(Scalar)];
    for (Index i = 0; i < L::size; ++i) line[i] = c + i < key_ ? row[c + i] : fill;
    return L::load(line);
  }

  /// W_C; returns whether 1 / W_C is harmless. A NaN is not.
  bool accumulate_decays() noexcept {
    L smallest = L::broadcast(1);
    for (Index c = 0; c < key_; c += L::size) {
      L decay = L::broadcast(1);
      for (Index i = 0; i < n_; ++i) decay = line_of(terms_[i].decays, c, 1) * decay;
      decay.store(decayed_ + c);
      smallest = minimum(decay, smallest);
    }
    return smallest.least() >= smallest_decay;
  }

  /// Heads that share q and k, as Mamba-2's do, share what is made of them alone.
  bool packed_already(const Block<Scalar>& block) noexcept {
    if constexpr (corrected || per_channel) return false;
    bool same = n_ == packed_n_;
    for (Index i = 0; i < n_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      same = same && query_[at] == terms_[i].query && packed_key_[at] == terms_[i].key;
      query_[at] = terms_[i].query;
      packed_key_[at] = terms_[i].key;
    }
    packed_n_ = n_;
    return same && !block.owns(terms_[0].query) && !block.owns(terms_[0].key);
  }

  /// Copies k and b, and transposes q and a.
  void pack() noexcept {
    alignas(cache_line) Scalar rows[static_cast<std::size_t>(columns * L::size)] = {};
    for (Index c = 0; c < key_; c += L::size) {
      L decay = L::broadcast(1);  // W_i
      for (Index i = 0; i < n_; ++i) {
        const Terms<Scalar>& t = terms_[i];
        L q = line_of(t.query, c), k = line_of(t.key, c);
        [[maybe_unused]] L a, b;
        if constexpr (corrected) a = line_of(t.a, c);
        if constexpr (law.correction == Correction::along_key) a = L::broadcast(t.b_gain) * a;
        if constexpr (rank_one) b = line_of(t.b, c);
        if constexpr (per_channel) {
          if constexpr (corrected) a = a * decay;
          decay = line_of(t.decays, c, 1) * decay;
          const L inverse = reciprocal(decay);
          q = q * decay;
          k = k * inverse;
          if constexpr (rank_one) b = b * inverse;
        }
        q.store(rows + i * L::size);
        if constexpr (corrected) a.store(rows + (a_column + i) * L::size);
        k.store(keys_ + i * stride_ + c);
        if constexpr (rank_one) b.store(b_ + i * stride_ + c);
      }
      transpose(rows, packed_ + c * columns);
    }
  }

  /// [columns, lanes] to [lanes, columns].
  static EIGEN_ALWAYS_INLINE void transpose(const Scalar* rows, Scalar* to) {
    constexpr Index size = L::packet_size;
    for (Index c = 0; c < L::size; c += size)
      for (Index r = 0; r < columns; r += size) {
        Eigen::internal::PacketBlock<Packet, static_cast<int>(size)> block;
        repeat<size>([&](auto i) LINREC_INLINE_LAMBDA {
          block.packet[i] = Eigen::internal::pload<Packet>(rows + (r + i) * L::size + c);
        });
        Eigen::internal::ptranspose(block);
        repeat<size>([&](auto i) LINREC_INLINE_LAMBDA {
          Eigen::internal::pstore(to + (c + i) * columns + r, block.packet[i]);
        });
      }
  }

  /// The products of n rows [K] with the packed columns, row by row.
  void multiply(const Scalar* rows, Scalar* products) const noexcept {
    for_each_tile<micro_rows<Scalar, 1>>(n_, [&](auto tile_size, Index j) LINREC_INLINE_LAMBDA {
      for (Index c = 0; c < columns; c += L::size) {
        auto tile = Tile<Scalar, 1, tile_size>::zero();
        tile.add_product(Left<Scalar>{rows + j * stride_, 1, stride_}, Right<Scalar>{packed_ + c, columns, 0},
                         key_);
        repeat<tile_size>([&](auto r) LINREC_INLINE_LAMBDA {
          tile.row[r].store(products + (j + r) * columns + c, 0);
        });
      }
    });
  }

  void set_ratios() noexcept {
    const auto at = [](Index i) { return static_cast<std::size_t>(i); };
    from_start_[0] = 1;
    for (Index i = 0; i < n_; ++i) from_start_[at(i + 1)] = from_start_[at(i)] * terms_[i].decay;
    to_end_[at(n_ - 1)] = 1;
    for (Index i = n_ - 1; i > 0; --i) to_end_[at(i - 1)] = to_end_[at(i)] * terms_[i].decay;
  }

  /// Row j of these has a one where the ratio of decays is of no token: in column j, and in column j + 1 of a.
  static constexpr auto units = [] {
    std::array<std::array<Scalar, static_cast<std::size_t>(columns)>, static_cast<std::size_t>(tokens)> rows{};
    for (std::size_t j = 0; j < static_cast<std::size_t>(tokens); ++j) {
      rows[j][j] = 1;
      if (corrected && j + 1 < static_cast<std::size_t>(tokens)) rows[j][static_cast<std::size_t>(a_column) + j + 1] = 1;
    }
    return rows;
  }();

  /// Multiplies the product of row j and column i by W_i / W_j, for a by W_{i-1} / W_j. Ratios of row j are those of
  /// row j + 1 times the decay between; where i comes before j they are 0, and nobody reads the factors.
  void decay_products(const Scalar* products, Scalar* factors) const noexcept {
    constexpr Index lines = columns / L::size;
    L ratios[static_cast<std::size_t>(lines)];
    for (L& ratio : ratios) ratio = L::broadcast(0);
    for (Index j = n_ - 1; j >= 0; --j) {
      const L decay = L::broadcast(j + 1 < n_ ? terms_[j + 1].decay : Scalar(0));
      for (Index c = 0; c < lines; ++c) {
        const L unit = L::load(units[static_cast<std::size_t>(j)].data() + c * L::size);
        ratios[c] = multiply_add(decay, ratios[c], unit);
        (ratios[c] * L::load(products + j * columns + c * L::size)).store(factors + j * columns + c * L::size);
      }
    }
  }

  Index key_, stride_;
  Scalar *packed_, *keys_, *b_ = nullptr, *decayed_, *key_products_, *key_factors_, *b_factors_ = nullptr;
  const Terms<Scalar>* terms_ = nullptr;
  Index n_ = 0, packed_n_ = 0;
  std::array<const Scalar*, static_cast<std::size_t>(tokens)> query_{}, packed_key_{};
  std::array<Scalar, static_cast<std::size_t>(tokens + 1)> from_start_{};
  std::array<Scalar, static_cast<std::size_t>(tokens)> to_end_{};
};

/// Runs a chunk over one strip of panels.
template <Law law, Index width, class Scalar>
class ChunkStrip {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  static constexpr Index rows = micro_rows<Scalar, width>, line = width * L::size;
  static constexpr bool per_head = law.decay == Decay::per_head;
  static constexpr bool corrected = law.correction != Correction::none;
  static constexpr bool rank_one = law.correction == Correction::rank_one;
  using Operands = Chunk<law, Scalar>;

 public:
  EIGEN_ALWAYS_INLINE ChunkStrip(const Operands& chunk, const Panels<Scalar>& panels, Index column,
                                 const Output<Scalar>& out, Ahead& ahead)
      : chunk_(chunk),
        panels_(panels),
        column_(column),
        out_(out),
        ahead_(ahead),
        values_(chunk.values),
        reads_(chunk.reads) {}

  EIGEN_ALWAYS_INLINE void run() {
    for (Index i = 0; i < chunk_.count(); ++i)
      (L::broadcast(chunk_[i].value_gain) * value(i)).store(values_ + i * line, L::size);
    if constexpr (corrected) substitute();
    write_outputs();
    update();
  }

 private:
  EIGEN_ALWAYS_INLINE S value(Index i) const { return S::load_columns(chunk_[i].value + column_, out_.columns); }
  EIGEN_ALWAYS_INLINE static S row_of(const Scalar* rows_of, Index i) { return S::load(rows_of + i * line, L::size); }
  EIGEN_ALWAYS_INLINE Right<Scalar> state() const { return {panels_.first, L::size, panels_.stride}; }
  EIGEN_ALWAYS_INLINE static Right<Scalar> right(const Scalar* of) { return {of, line, L::size}; }
  /// += factor x, for one row.
  EIGEN_ALWAYS_INLINE static void add(S& row, Scalar factor, const S& x) {
    row = multiply_add(L::broadcast(factor), x, row);
  }

  /// y_i, or along the key u_i in the place of v_i: forward substitution, by tiles and inside of them.
  EIGEN_ALWAYS_INLINE void substitute() {
    for_each_tile<rows>(chunk_.count(), [&](auto size, Index i) LINREC_INLINE_LAMBDA {
      const Index column = Operands::a_column + i;
      auto tile = Tile<Scalar, width, size>::zero();
      ahead_.advance(chunk_.key());
      tile.add_product(chunk_.reading(column), state(), chunk_.key());
      if constexpr (per_head)
        tile.transform([&](auto r, const S& y) LINREC_INLINE_LAMBDA { return L::broadcast(chunk_.before(i + r)) * y; });
      const PackedLeft<Scalar> by_key = chunk_.key_factors(column);
      tile.add_product(by_key, right(values_), i);
      const Scalar* key_factor = by_key.data + i * Operands::columns;
      if constexpr (rank_one) {
        const PackedLeft<Scalar> by_b = chunk_.b_factors(column);
        tile.add_product(by_b, right(reads_), i);
        const Scalar* b_factor = by_b.data + i * Operands::columns;
        repeat<size>([&](auto j) LINREC_INLINE_LAMBDA {
          tile.row[j].store(reads_ + (i + j) * line, L::size);
          const S v = row_of(values_, i + j);
          repeat<size - j - 1>([&](auto d) LINREC_INLINE_LAMBDA {
            add(tile.row[j + d + 1], b_factor[j * Operands::columns + j + d + 1], tile.row[j]);
            add(tile.row[j + d + 1], key_factor[j * Operands::columns + j + d + 1], v);
          });
        });
      } else {
        tile.transform([&](auto r, const S& y) LINREC_INLINE_LAMBDA { return row_of(values_, i + r) + y; });
        repeat<size>([&](auto j) LINREC_INLINE_LAMBDA {
          tile.row[j].store(values_ + (i + j) * line, L::size);
          repeat<size - j - 1>([&](auto d) LINREC_INLINE_LAMBDA {
            add(tile.row[j + d + 1], key_factor[j * Operands::columns + j + d + 1], tile.row[j]);
          });
        });
      }
    });
  }

  EIGEN_ALWAYS_INLINE void write_outputs() {
    for_each_tile<rows>(chunk_.count(), [&](auto size, Index i) LINREC_INLINE_LAMBDA {
      auto tile = Tile<Scalar, width, size>::zero();
      ahead_.advance(chunk_.key());
      tile.add_product(chunk_.reading(i), state(), chunk_.key());
      if constexpr (per_head)
        tile.transform(
            [&](auto r, const S& o) LINREC_INLINE_LAMBDA { return L::broadcast(chunk_.from_start(i + r)) * o; });
      add_tokens(tile, chunk_.key_factors(i), values_, i);
      if constexpr (rank_one) add_tokens(tile, chunk_.b_factors(i), reads_, i);
      repeat<size>([&](auto r) LINREC_INLINE_LAMBDA {
        S o = L::broadcast(out_.scale) * tile.row[r];
        if (out_.skip != nullptr) o = multiply_add(S::load(out_.skip, L::size), value(i + r), o);
        o.store_columns(out_.data + (i + r) * out_.stride, out_.columns);
      });
    });
  }
  /// += the sum over all tokens up to each row's own.
  template <Index size>
  EIGEN_ALWAYS_INLINE void add_tokens(Tile<Scalar, width, size>& tile, const PackedLeft<Scalar>& factors,
                                      const Scalar* of, Index i) {
    tile.add_product(factors, right(of), i);
    const Scalar* factor = factors.data + i * Operands::columns;
    repeat<size>([&](auto j) LINREC_INLINE_LAMBDA {
      const S x = row_of(of, i + j);
      repeat<size - j>([&](auto d) LINREC_INLINE_LAMBDA {
        add(tile.row[j + d], factor[j * Operands::columns + j + d], x);
      });
    });
  }

  EIGEN_ALWAYS_INLINE void update() {
    if constexpr (per_head)
      for (Index i = 0; i < chunk_.count(); ++i) {
        const L decay = L::broadcast(chunk_.to_end(i));
        (decay * row_of(values_, i)).store(values_ + i * line, L::size);
        if constexpr (rank_one) (decay * row_of(reads_, i)).store(reads_ + i * line, L::size);
      }
    for_each_tile<rows>(chunk_.key(), [&](auto size, Index c) LINREC_INLINE_LAMBDA {
      Scalar* first = panels_.first + c * L::size;
      ahead_.advance(chunk_.count());
      auto tile = Tile<Scalar, width, size>::of([&](auto r) LINREC_INLINE_LAMBDA {
        const S s = S::load(first + r * L::size, panels_.stride);
        if constexpr (per_head)
          return L::broadcast(chunk_.whole()) * s;
        else
          return s;
      });
      tile.add_product(chunk_.keys(c), right(values_), chunk_.count());
      if constexpr (rank_one) tile.add_product(chunk_.b(c), right(reads_), chunk_.count());
      if constexpr (law.decay == Decay::per_channel)
        tile.transform([&](auto r, const S& s) LINREC_INLINE_LAMBDA { return L::broadcast(chunk_.whole(c + r)) * s; });
      repeat<size>([&](auto r) LINREC_INLINE_LAMBDA { tile.row[r].store(first + r * L::size, panels_.stride); });
    });
  }

  const Operands& chunk_;
  const Panels<Scalar> panels_;
  const Index column_;
  const Output<Scalar> out_;
  Ahead& ahead_;
  Scalar *const values_, *const reads_;
};

/// Whether chunks pay for `tokens` tokens of a head of this size; else the panel scan is as fast.
constexpr bool chunks_pay(Index tokens, Index key, Index value) {
  return tokens >= 4 && key >= block_tokens && value >= block_tokens;
}

/// Runs `count` tokens of a block over all panels of a head, chunk by chunk.
template <Law law, class Scalar>
EIGEN_DONT_INLINE void run_chunks(Chunk<law, Scalar>& chunk, const Head<Scalar>& head, const Block<Scalar>& block,
                                  Index count, Ahead& ahead) noexcept {
  constexpr Index rows = micro_rows<Scalar, strip_width<Scalar>>;
  constexpr Index sides = law.correction == Correction::none ? 1 : 2;
  ahead.spread(head.strips() * head.key * (sides * ((count + rows - 1) / rows) + count / rows + 1));
  for (Index first = 0; first < count; first += chunk.tokens) {
    const Index n = std::min(chunk.tokens, count - first);
    if (!chunks_pay(n, head.key, head.value) || !chunk.prepare(block, first, n)) {
      scan<law, Dynamic, Dynamic>(head, &block[0], first, n, ahead);
      continue;
    }
    head.for_each_strip([&](auto width, Index column) LINREC_INLINE_LAMBDA {
      ChunkStrip<law, width, Scalar>(chunk, head.panels(column), column, head.output(first, column, width), ahead)
          .run();
    });
  }
}

}  // namespace linrec::detail
