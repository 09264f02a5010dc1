// The chunked form of the law: a few tokens at once, as small matrix products.
//
// Let S_0 be the state before the chunk, W_i the product of the decays of its tokens 1 to i, and b_i = c_i
// k_i or 0. With u_i = v_i + c_i S_{i-1}^T a_i the law of law.hpp, unrolled, says
//
//   u_i = v_i + c_i (W_{i-1} a_i)^T S_0 + sum_{j<i} (c_i a_i^T W_{i-1}/W_j k_j) u_j
//   o_i =           (W_i q_i)^T S_0     + sum_{j<=i} (q_i^T W_i/W_j k_j) u_j
//   S_C =            W_C S_0            + sum_j (W_C/W_j k_j) u_j^T
//
// The numbers in brackets do not depend on the panel: they are computed once for a head. The first line is
// solved by forward substitution (arXiv 2406.06484, section 3, without its matrices W and U). A correction of
// rank one has no such form that pays: it doubles the sums, and the panel scan is faster on all machines that
// were tried.
//
// Ratios of decays. Per head they are products of the decays between two tokens, never quotients or
// differences of sums, so that hard resets and enormous decays are exact. Per channel they are factored as
// W_i times 1/W_j, which is as accurate as long as 1/W_C stays far from overflow; a chunk with stronger
// decays is left to the panel scan.
#pragma once

#include <array>

#include "linrec/kernels/micro_kernel.hpp"
#include "linrec/kernels/panel_scan.hpp"

namespace linrec::detail {

/// What all panels of a head share in a chunk, in memory of the caller.
template <Law law, class Scalar, class StateScalar>
class Chunk {
  using L = Lanes<Scalar>;
  using Packet = typename L::Packet;
  static constexpr bool per_head = law.decay == Decay::per_head;
  static constexpr bool per_channel = law.decay == Decay::per_channel;
  static constexpr bool corrected = law.correction != Correction::none;

 public:
  /// Tokens of a chunk. The work inside a chunk grows with it, and reading the state is paid by 16.
  static constexpr Index tokens = block_tokens;
  /// Of the packed rows: a column a token for q, and behind them for a.
  static constexpr Index columns = corrected ? 2 * tokens : tokens;
  static constexpr Index a_column = tokens;

  static constexpr Index widest = strip_width<Scalar> * L::size;
  /// Whether the state is computed with in another scalar than it is kept in.
  static constexpr bool widened = !std::is_same_v<Scalar, StateScalar>;

  /// Numbers of memory, on a cache line.
  static Index memory_size(Index key) {
    const Index row = padded<Scalar>(key);
    return row * (columns + tokens + 1) + tokens * (2 * columns + widest) + (widened ? key * widest : 0);
  }

  Chunk(Scalar* memory, Index key) : key_(key), stride_(padded<Scalar>(key)) {
    const auto take = [&](Index n) {
      Scalar* part = memory;
      memory += n;
      return part;
    };
    packed_ = take(stride_ * columns);
    keys_ = take(stride_ * tokens);
    decayed_ = take(stride_);
    products_ = take(tokens * columns);
    factors_ = take(tokens * columns);
    values = take(tokens * widest);
    if constexpr (widened) state = take(key * widest);
  }

  Scalar* values;           ///< for a strip: v, then u, [tokens, columns of the strip]
  Scalar* state = nullptr;  ///< a strip of a state, widened

  /// Computes what all panels share, for n tokens of a block. Returns false, and has done nothing that
  /// matters, if the decays are too strong.
  EIGEN_DONT_INLINE bool prepare(const Block<Scalar>& block, Index n) noexcept {
    terms_ = &block[0];
    n_ = n;
    if constexpr (per_channel)
      if (!accumulate_decays()) return false;
    if (!packed_already(block)) {
      pack();
      multiply();
    }
    if constexpr (per_head) {
      set_ratios();
      decay_products();
    }
    return true;
  }

  const Terms<Scalar>& operator[](Index i) const { return terms_[i]; }
  Index count() const { return n_; }
  Index key() const { return key_; }

  /// q or a of the tokens from one on, for reading the state.
  PackedLeft<Scalar> reading(Index column) const { return {packed_ + column, columns}; }
  /// The numbers in brackets of the sums, from a column on: row i at step j.
  PackedLeft<Scalar> factors(Index column) const {
    return {(per_head ? factors_ : products_) + column, columns};
  }
  /// k_j for writing the state, from channel c on; per channel, divided by W_j.
  PackedLeft<Scalar> keys(Index c) const { return {keys_ + c, stride_}; }

  /// Per head: W_i, W_{i-1}, W_C / W_i.
  Scalar from_start(Index i) const { return from_start_[static_cast<std::size_t>(i + 1)]; }
  Scalar before(Index i) const { return from_start_[static_cast<std::size_t>(i)]; }
  Scalar to_end(Index i) const { return to_end_[static_cast<std::size_t>(i)]; }
  /// W_C: per head, and for channel c.
  Scalar whole() const { return from_start(n_ - 1); }
  Scalar whole(Index c) const { return decayed_[c]; }

 private:
  /// 1 / W_C may be as large as the reciprocal of this: far from overflow, as are keys that are multiplied by
  /// it.
  static constexpr Scalar smallest_decay = static_cast<Scalar>(sizeof(Scalar) == 4 ? 1e-18 : 1e-150);

  /// A cache line of a row of K numbers, from channel c on; what lies beyond K is `fill`.
  EIGEN_ALWAYS_INLINE L line_of(const Scalar* row, Index c, Scalar fill = 0) const {
    if (c + L::size <= key_) return L::load(row + c);
    alignas(cache_line) Scalar line[cache_line / sizeof(Scalar)];
    for (Index i = 0; i < L::size; ++i) line[i] = c + i < key_ ? row[c + i] : fill;
    return L::load(line);
  }

  /// W_C; returns whether 1 / W_C is harmless.
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

  /// Copies k, and transposes q and a.
  void pack() noexcept {
    alignas(cache_line) Scalar rows[static_cast<std::size_t>(columns * L::size)] = {};
    for (Index c = 0; c < key_; c += L::size) {
      L decay = L::broadcast(1);  // W_i
      for (Index i = 0; i < n_; ++i) {
        const Terms<Scalar>& t = terms_[i];
        L q = line_of(t.query, c), k = line_of(t.key, c);
        [[maybe_unused]] L a;
        if constexpr (corrected) a = L::broadcast(t.b_gain) * line_of(t.a, c);
        if constexpr (per_channel) {
          if constexpr (corrected) a = a * decay;
          decay = line_of(t.decays, c, 1) * decay;
          q = q * decay;
          k = k * reciprocal(decay);
        }
        q.store(rows + i * L::size);
        if constexpr (corrected) a.store(rows + (a_column + i) * L::size);
        k.store(keys_ + i * stride_ + c);
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

  /// The products of each k with each q and a, without decays per head.
  void multiply() noexcept {
    for_each_tile<micro_rows<Scalar, 1>>(n_, [&](auto tile_size, Index j) LINREC_INLINE_LAMBDA {
      for (Index c = 0; c < columns; c += L::size) {
        auto tile = Tile<Scalar, 1, tile_size>::zero();
        tile.add_product(Left<Scalar>{keys_ + j * stride_, 1, stride_},
                         Right<Scalar>{packed_ + c, columns, 0}, key_);
        repeat<tile_size>(
            [&](auto r) LINREC_INLINE_LAMBDA { tile.row[r].store(products_ + (j + r) * columns + c, 0); });
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

  /// Row j of these has a one where the ratio of decays is of no token: in column j, and in column j + 1 of
  /// a.
  static constexpr auto units = [] {
    std::array<std::array<Scalar, static_cast<std::size_t>(columns)>, static_cast<std::size_t>(tokens)>
        rows{};
    for (std::size_t j = 0; j < static_cast<std::size_t>(tokens); ++j) {
      rows[j][j] = 1;
      if (corrected && j + 1 < static_cast<std::size_t>(tokens))
        rows[j][static_cast<std::size_t>(a_column) + j + 1] = 1;
    }
    return rows;
  }();

  /// Multiplies the product of row j and column i by W_i / W_j, for a by W_{i-1} / W_j. Ratios of row j are
  /// those of row j + 1 times the decay between; where i comes before j they are 0, and nobody reads the
  /// factors.
  void decay_products() noexcept {
    constexpr Index lines = columns / L::size;
    L ratios[static_cast<std::size_t>(lines)];
    for (L& ratio : ratios) ratio = L::broadcast(0);
    for (Index j = n_ - 1; j >= 0; --j) {
      const L decay = L::broadcast(j + 1 < n_ ? terms_[j + 1].decay : Scalar(0));
      for (Index c = 0; c < lines; ++c) {
        const L unit = L::load(units[static_cast<std::size_t>(j)].data() + c * L::size);
        ratios[c] = multiply_add(decay, ratios[c], unit);
        (ratios[c] * L::load(products_ + j * columns + c * L::size))
            .store(factors_ + j * columns + c * L::size);
      }
    }
  }

  Index key_, stride_;
  Scalar *packed_, *keys_, *decayed_, *products_, *factors_;
  const Terms<Scalar>* terms_ = nullptr;
  Index n_ = 0, packed_n_ = 0;
  std::array<const Scalar*, static_cast<std::size_t>(tokens)> query_{}, packed_key_{};
  std::array<Scalar, static_cast<std::size_t>(tokens + 1)> from_start_{};
  std::array<Scalar, static_cast<std::size_t>(tokens)> to_end_{};
};

/// Runs a chunk over one strip of panels.
template <Law law, Index width, class Scalar, class StateScalar>
class ChunkStrip {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  static constexpr Index rows = micro_rows<Scalar, width>, line = width * L::size;
  static constexpr bool per_head = law.decay == Decay::per_head;
  static constexpr bool corrected = law.correction != Correction::none;
  using Operands = Chunk<law, Scalar, StateScalar>;

 public:
  EIGEN_ALWAYS_INLINE ChunkStrip(const Operands& chunk, const Panels<Scalar>& panels, Index column,
                                 const Output<Scalar>& out, Ahead& ahead)
      : chunk_(chunk), panels_(panels), column_(column), out_(out), ahead_(ahead), values_(chunk.values) {}

  EIGEN_ALWAYS_INLINE void run() {
    for (Index i = 0; i < chunk_.count(); ++i)
      (L::broadcast(chunk_[i].value_gain) * value(i)).store(values_ + i * line, L::size);
    if constexpr (corrected) substitute();
    write_outputs();
    update();
  }

 private:
  EIGEN_ALWAYS_INLINE S value(Index i) const {
    return S::load_columns(chunk_[i].value + column_, out_.columns);
  }
  EIGEN_ALWAYS_INLINE S row(Index i) const { return S::load(values_ + i * line, L::size); }
  EIGEN_ALWAYS_INLINE Right<Scalar> state() const { return {panels_.first, L::size, panels_.stride}; }
  EIGEN_ALWAYS_INLINE Right<Scalar> values() const { return {values_, line, L::size}; }
  /// sum += factor x
  EIGEN_ALWAYS_INLINE static void add(S& sum, Scalar factor, const S& x) {
    sum = multiply_add(L::broadcast(factor), x, sum);
  }

  /// u_i in the place of v_i: forward substitution, by tiles and inside of them.
  EIGEN_ALWAYS_INLINE void substitute() {
    for_each_tile<rows>(chunk_.count(), [&](auto size, Index i) LINREC_INLINE_LAMBDA {
      const Index column = Operands::a_column + i;
      auto tile = Tile<Scalar, width, size>::zero();
      ahead_.advance(chunk_.key());
      tile.add_product(chunk_.reading(column), state(), chunk_.key());
      tile.transform([&](auto r, S u) LINREC_INLINE_LAMBDA {
        if constexpr (per_head) u = L::broadcast(chunk_.before(i + r)) * u;
        return row(i + r) + u;
      });
      const PackedLeft<Scalar> factors = chunk_.factors(column);
      tile.add_product(factors, values(), i);
      const Scalar* own = factors.data + i * Operands::columns;
      repeat<size>([&](auto j) LINREC_INLINE_LAMBDA {
        tile.row[j].store(values_ + (i + j) * line, L::size);
        repeat<size - j - 1>([&](auto d) LINREC_INLINE_LAMBDA {
          add(tile.row[j + d + 1], own[j * Operands::columns + j + d + 1], tile.row[j]);
        });
      });
    });
  }

  EIGEN_ALWAYS_INLINE void write_outputs() {
    for_each_tile<rows>(chunk_.count(), [&](auto size, Index i) LINREC_INLINE_LAMBDA {
      auto tile = Tile<Scalar, width, size>::zero();
      ahead_.advance(chunk_.key());
      tile.add_product(chunk_.reading(i), state(), chunk_.key());
      if constexpr (per_head)
        tile.transform([&](auto r, const S& o)
                           LINREC_INLINE_LAMBDA { return L::broadcast(chunk_.from_start(i + r)) * o; });
      const PackedLeft<Scalar> factors = chunk_.factors(i);
      tile.add_product(factors, values(), i);
      const Scalar* own = factors.data + i * Operands::columns;
      repeat<size>([&](auto j) LINREC_INLINE_LAMBDA {
        const S u = row(i + j);
        repeat<size - j>([&](auto d) LINREC_INLINE_LAMBDA {
          add(tile.row[j + d], own[j * Operands::columns + j + d], u);
        });
      });
      repeat<size>([&](auto r) LINREC_INLINE_LAMBDA {
        S o = L::broadcast(out_.scale) * tile.row[r];
        if (out_.skip != nullptr) o = multiply_add(S::load(out_.skip, L::size), value(i + r), o);
        o.store_columns(out_.data + (i + r) * out_.stride, out_.columns);
      });
    });
  }
  EIGEN_ALWAYS_INLINE void update() {
    if constexpr (per_head)
      for (Index i = 0; i < chunk_.count(); ++i)
        (L::broadcast(chunk_.to_end(i)) * row(i)).store(values_ + i * line, L::size);
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
      tile.add_product(chunk_.keys(c), values(), chunk_.count());
      if constexpr (law.decay == Decay::per_channel)
        tile.transform([&](auto r, const S& s)
                           LINREC_INLINE_LAMBDA { return L::broadcast(chunk_.whole(c + r)) * s; });
      repeat<size>([&](auto r)
                       LINREC_INLINE_LAMBDA { tile.row[r].store(first + r * L::size, panels_.stride); });
    });
  }

  const Operands& chunk_;
  const Panels<Scalar> panels_;
  const Index column_;
  const Output<Scalar> out_;
  Ahead& ahead_;
  Scalar* const values_;
};

/// Whether there are chunks for this law.
constexpr bool has_chunks(Law law) { return law.correction != Correction::rank_one; }

/// Whether they pay for `tokens` tokens of a head of this size; else the panel scan is as fast.
constexpr bool chunks_pay(Index tokens, Index key, Index value) {
  return tokens >= 4 && key >= block_tokens && value >= block_tokens;
}

/// Copies a strip of a state between scalars.
template <class Scalar, Index width, class From, class To>
EIGEN_ALWAYS_INLINE void convert(const Panels<From>& from, const Panels<To>& to) {
  using Pair = RowPair<Scalar, width>;
  Index i = 0;
  for (; i + 1 < to.key; i += 2) Pair::load(from, i).store(to, i);
  if (i < to.key) Pair::load_last(from, i).store_last(to, i);
}

/// Runs `count` tokens of a block over all panels of a head, chunk by chunk.
template <Law law, class Scalar, class StateScalar>
EIGEN_DONT_INLINE void run_chunks(Chunk<law, Scalar, StateScalar>& chunk,
                                  const Head<Scalar, StateScalar>& head, Block<Scalar>& block, Index count,
                                  Ahead& ahead) noexcept {
  constexpr Index rows = micro_rows<Scalar, strip_width<Scalar>>;
  constexpr Index sides = law.correction == Correction::none ? 1 : 2;
  ahead.spread(head.strips() * head.key * (sides * ((count + rows - 1) / rows) + count / rows + 1));
  if (!chunk.prepare(block, count)) {
    if constexpr (!std::is_same_v<Scalar, StateScalar>) block.make_quiet(law);
    return scan<law, Dynamic, Dynamic>(head, &block[0], 0, count, ahead);
  }
  head.for_each_strip([&](auto width, Index column) LINREC_INLINE_LAMBDA {
    const auto run = [&](const Panels<Scalar>& panels) LINREC_INLINE_LAMBDA {
      ChunkStrip<law, width, Scalar, StateScalar>(chunk, panels, column, head.output(0, column, width), ahead)
          .run();
    };
    if constexpr (!std::is_same_v<Scalar, StateScalar>) {
      const Panels<Scalar> panels{chunk.state, head.key, head.key * Lanes<Scalar>::size};
      convert<Scalar, width>(head.panels(column), panels);
      run(panels);
      convert<Scalar, width>(panels, head.panels(column));
    } else {
      run(head.panels(column));
    }
  });
}

}  // namespace linrec::detail
