// Chunk: what all panels of a head share in the chunked form of chunk.hpp, computed once - the queries and the
// rows a packed, the keys, and the numbers in brackets.
#pragma once

#include <array>

#include "linrec/kernels/law.hpp"
#include "linrec/kernels/micro_kernel.hpp"

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

}  // namespace linrec::detail
